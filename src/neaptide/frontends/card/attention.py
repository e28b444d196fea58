"""Which kernel `scaled_dot_product_attention` runs on a card, by PyTorch's rules.

The rules restate those of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and of `scaled_dot_product_attention` in
aten/src/ATen/native/transformers/attention.cpp (github.com/pytorch/pytorch), for dense tensors on NVIDIA cards. Without a
card PyTorch itself takes the plain operations, which keep the scores of all heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from neaptide.frontends.card._torch_private import release

aten = torch.ops.aten
Kernel = Literal["cudnn", "flash", "efficient", "math"]

_HALVES = (torch.float16, torch.bfloat16)
_AMPERE, _HOPPER, _BLACKWELL = (8, 0), 9, 10
_NEWEST = (12, 1)  # for which PyTorch is built
_FLASH_HEAD, _CUDNN_HEAD, _CUDNN_LARGE_HEAD = 256, 128, 256
_SIXTEENTHS = 16  # cuDNN drops with a probability of so many parts
_MASK_ALIGNMENT = 8  # of the strides of a mask, in elements, for the memory-efficient kernel


@dataclass(frozen=True, slots=True)
class Asked:
    """What the choice depends on.

    Attributes:
        query: shape, batch and heads first; `key` and `value` likewise.
        unit_strides: whether the last axis of all three is contiguous.
        aligned: whether none of them begins at an address that no vector load can have.
        gradients: one of them wants a gradient.
        repeats_heads: queries may have more heads than keys (`enable_gqa`).
        enabled: kernels that the user has not turned off.
    """

    dtype: torch.dtype
    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    has_mask: bool = False
    dropout: float = 0.0
    is_causal: bool = False
    gradients: bool = True
    unit_strides: bool = True
    aligned: bool = True
    repeats_heads: bool = False
    deterministic: bool = False
    enabled: frozenset[str] = frozenset({"cudnn", "flash", "efficient", "math"})


def chosen(asked: Asked, capability: tuple[int, int]) -> Kernel:
    """The first kernel in PyTorch's order that takes such operands on a card of that compute capability."""
    prefers_cudnn = capability[0] in (_HOPPER, _BLACKWELL)
    order: tuple[Kernel, ...] = ("cudnn", "flash", "efficient") if prefers_cudnn else ("flash", "efficient")
    for kernel in order:
        if kernel in asked.enabled and _fits(asked, capability) and _RULES[kernel](asked, capability):
            return kernel
    return "math"


def _fits(asked: Asked, capability: tuple[int, int]) -> bool:
    """What all kernels want."""
    shapes = (asked.query, asked.key, asked.value)
    return (
        all(len(shape) == 4 for shape in shapes)
        and len({shape[0] for shape in shapes}) == 1
        and _heads_agree(asked)
        and all(shape[2] != 0 for shape in shapes)
        and asked.unit_strides
        and capability <= _NEWEST
    )


def _heads_agree(asked: Asked) -> bool:
    queries, keys, values = (shape[1] for shape in (asked.query, asked.key, asked.value))
    if not asked.repeats_heads:
        return bool(queries == keys == values)
    return bool(keys == values and keys != 0 and queries % keys == 0)


def _is_half(asked: Asked, capability: tuple[int, int]) -> bool:
    return asked.dtype in (_HALVES if capability >= _AMPERE else (torch.float16,))


def _flash(asked: Asked, capability: tuple[int, int]) -> bool:
    head = asked.query[3]
    takes_large = not asked.gradients or head <= 192 or (not asked.dropout and head > 224)
    is_small_card = (8, 6) <= capability <= (8, 9) or capability >= (12, 0)
    return (
        not asked.has_mask
        and head == asked.key[3] == asked.value[3]
        and head <= _FLASH_HEAD
        and capability >= _AMPERE
        and (takes_large or not is_small_card)
        and (not asked.is_causal or asked.query[2] == asked.key[2])
        and _is_half(asked, capability)
    )


def _efficient(asked: Asked, capability: tuple[int, int]) -> bool:
    is_half = asked.dtype in _HALVES
    dtypes = (*_HALVES, torch.float32) if capability >= _AMPERE else (torch.float16, torch.float32)
    has_tensor_cores = capability >= _AMPERE or (capability[0] >= 7 and is_half)
    step = max(4 if capability >= _AMPERE else 1, (8 if is_half else 4) if has_tensor_cores else 1)
    heads = (asked.query[3], asked.value[3])
    return (
        asked.query[1] == asked.key[1]  # its gradients have as many heads of keys as of queries
        and asked.dtype in dtypes
        and asked.query[3] == asked.key[3]
        and all(head > 0 and head % step == 0 for head in heads)
        and asked.aligned
    )


def _cudnn(asked: Asked, capability: tuple[int, int]) -> bool:
    heads = (asked.query[3], asked.value[3])
    newer = release() >= (2, 14)  # with a cuDNN that takes larger heads
    if newer:
        backward = max(heads) <= _CUDNN_HEAD or heads in ((192, 128), (256, 256))
        takes = max(heads) <= _CUDNN_LARGE_HEAD and (backward or not asked.gradients)
        takes = takes and asked.dropout * _SIXTEENTHS == math.floor(asked.dropout * _SIXTEENTHS)
    else:
        takes = max(heads) <= _CUDNN_HEAD or heads == (192, 128)
    return (
        takes
        and all(head % 8 == 0 for head in heads)
        and _is_half(asked, capability)
        and not asked.deterministic
        and asked.key[2] != 1
        and (not asked.dropout or asked.query[2] != 1)
    )


_RULES: dict[str, Callable[[Asked, tuple[int, int]], bool]] = {
    "cudnn": _cudnn,
    "flash": _flash,
    "efficient": _efficient,
}


def attention(capability: tuple[int, int]) -> Callable[..., torch.Tensor]:
    """What `aten::scaled_dot_product_attention` does with gradients on a card of that compute capability."""

    def scaled_dot_product_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        operands = (query, key, value)
        asked = _asked(operands, attn_mask, dropout_p, is_causal, enable_gqa)
        kernel = chosen(asked, capability)
        if kernel == "math":
            return _plain(operands, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if kernel == "flash":
            return _run_flash(operands, dropout_p, is_causal, scale)
        mask = _as_numbers(attn_mask, query.dtype)
        if kernel == "cudnn":
            run = aten._scaled_dot_product_cudnn_attention  # noqa: SLF001
            given = (*operands, mask, asked.gradients, dropout_p, is_causal, False)
            return run(*given, scale=scale)[0]  # type: ignore[no-any-return]
        mask = None if mask is None else _aligned_mask(mask, query, key)
        run = aten._scaled_dot_product_efficient_attention  # noqa: SLF001
        found = run(*operands, mask, asked.gradients, dropout_p, is_causal, scale=scale)
        return found[0]  # type: ignore[no-any-return]

    return scaled_dot_product_attention


def _asked(
    operands: tuple[torch.Tensor, ...],
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    repeats_heads: bool,
) -> Asked:
    settings: Any = torch.backends.cuda
    flags = {
        "cudnn": settings.cudnn_sdp_enabled(),
        "flash": settings.flash_sdp_enabled(),
        "efficient": settings.mem_efficient_sdp_enabled(),
    }
    query, key, value = (tuple(operand.shape) for operand in operands)
    size = operands[0].element_size()
    return Asked(
        operands[0].dtype,
        query,
        key,
        value,
        has_mask=mask is not None,
        dropout=dropout,
        is_causal=is_causal,
        gradients=torch.is_grad_enabled() and any(operand.requires_grad for operand in operands),
        unit_strides=all(operand.stride(-1) == 1 for operand in operands),
        aligned=release() < (2, 14) or not any(t.storage_offset() * size % 16 for t in operands),
        repeats_heads=repeats_heads,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        enabled=frozenset(name for name, is_on in flags.items() if is_on),
    )


def _plain(
    operands: tuple[torch.Tensor, ...],
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    repeats_heads: bool,
) -> torch.Tensor:
    mask = _as_numbers(mask, operands[0].dtype)
    run = aten._scaled_dot_product_attention_math  # noqa: SLF001
    return run(*operands, mask, dropout, is_causal, None, scale=scale, enable_gqa=repeats_heads)[0]  # type: ignore[no-any-return]


def _run_flash(
    operands: tuple[torch.Tensor, ...], dropout: float, is_causal: bool, scale: float | None
) -> torch.Tensor:
    head = operands[0].shape[-1]
    scale = 1 / math.sqrt(head) if scale is None else scale
    missing = -head % 8
    padded = [torch.nn.functional.pad(t, (0, missing)) if missing else t for t in operands]
    run = aten._scaled_dot_product_flash_attention  # noqa: SLF001
    found: torch.Tensor = run(*padded, dropout, is_causal, False, scale=scale)[0]
    return found[..., :head] if missing else found


def _as_numbers(mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    """A mask to add to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    if release() >= (2, 13):
        return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device))
    zero = torch.scalar_tensor(0.0, dtype=dtype, device=mask.device)
    return torch.where(mask.logical_not(), -math.inf, zero)


def _aligned_mask(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    strides = [stride % _MASK_ALIGNMENT == 0 for stride in mask.stride()[:-1]]
    if not all(strides) or mask.stride(-1) != 1:
        length = mask.shape[-1]
        missing = _MASK_ALIGNMENT - length % _MASK_ALIGNMENT
        mask = torch.nn.functional.pad(mask, (0, missing))[..., :length]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])

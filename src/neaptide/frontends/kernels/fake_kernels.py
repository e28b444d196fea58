"""What operations give for fake tensors, where torch's own answer is not that of its kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from neaptide.frontends import _torch_private as private

_ALIGNMENT_BYTES = 16  # of the rows of what grouped products give


def _grouped_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,  # noqa: ARG001 - the kernels refuse one
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Products of groups of rows, as mixtures of experts use them.

    torch's answer takes bfloat16 only and does not pad rows on the CPU; its kernels take other types, and pad.
    """
    dtype = out_dtype or left.dtype
    groups = () if offs is None else (offs.shape[0],)
    rows, columns = left.shape[-2], right.shape[-1]
    if left.dim() == right.dim():
        batch = (left.shape[0],) if left.dim() == 3 else groups
        size: tuple[int, ...] = (*batch, rows, columns)
    else:
        size = (rows, columns)
    per_row = _ALIGNMENT_BYTES // dtype.itemsize
    padded = -(-columns // per_row) * per_row
    strides = (rows * padded, padded, 1)[-len(size) :]
    return torch.empty_strided(size, strides, dtype=dtype, device=left.device)


_longest_targets: list[int] = []  # of the CTC losses that are going on


@contextlib.contextmanager
def longest_target(length: int) -> Iterator[None]:
    """Say how long the longest target of a CTC loss is, which its table has room for: its fake operands do not."""
    _longest_targets.append(length)
    try:
        yield
    finally:
        _longest_targets.pop()


def _ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,  # noqa: ARG001 - decides no size
    input_lengths: Any,
    *_rest: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each sequence, and the table of its alignments: the longest target, with blanks between.

    torch has no answer for fake tensors. Where nobody has said how long the longest target is, only the data knows.
    """
    if not _longest_targets:
        raise private.UnknownSizeError("aten._ctc_loss")
    count, width = len(input_lengths), 2 * _longest_targets[-1] + 1
    return log_probs.new_empty((count,)), log_probs.new_empty((count, log_probs.shape[0], width))


def _ctc_loss_backward(grad: torch.Tensor, log_probs: torch.Tensor, *_rest: Any) -> torch.Tensor:  # noqa: ARG001
    """A gradient in the order of the axes, whatever strides the input has."""
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


FAKE_KERNELS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        torch.ops.aten._grouped_mm.default: _grouped_mm,  # noqa: SLF001
        torch.ops.aten._ctc_loss.default: _ctc_loss,  # noqa: SLF001
        torch.ops.aten._ctc_loss.Tensor: _ctc_loss,  # noqa: SLF001
        torch.ops.aten._ctc_loss_backward.default: _ctc_loss_backward,  # noqa: SLF001
        torch.ops.aten._ctc_loss_backward.Tensor: _ctc_loss_backward,  # noqa: SLF001
    }
)
"""By operation: a function of the same arguments that gives tensors of the right geometry."""

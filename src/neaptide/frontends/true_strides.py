"""Strides that PyTorch's fake kernels get wrong, put right.

A fake kernel that is a decomposition gives its result the strides of another operand than the kernel that really runs.
A `reshape` behind it is then traced as a view, which fails when the program runs, or as a copy, which costs bytes that
eager does not need. It happens only where an operand is not contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends import _torch_private as private

Strides = tuple[int, ...]


def with_true_strides(found: Any, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a fake kernel returned, its wrong strides replaced. O(tensors of the call).

    Args:
        found: what it returned.
        func: the operation.
        args: fake tensors and plain values.
        kwargs: likewise.
    """
    rule = _RULES.get(func.name())
    if rule is None and not private.has_python_kernel(func):
        return found
    operands = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if all(not _is_plain(operand) or operand.is_contiguous() for operand in operands):
        return found
    results, structure = pytree.tree_flatten(found)
    tensors = [leaf for leaf in results if isinstance(leaf, torch.Tensor)]
    own = {private.storage_key(operand) for operand in operands}
    if not all(map(_is_plain, (*operands, *tensors))) or any(private.storage_key(t) in own for t in tensors):
        return found
    expected = rule(args, results) if rule is not None else _by_structured_kernel(func, args, kwargs)
    wrong = {place: true for place, true in expected.items() if _is_other(results[place], true)}
    for place, true in wrong.items():
        results[place] = results[place].new_empty_strided(results[place].shape, true)
    return pytree.tree_unflatten(results, structure) if wrong else found


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether shape and strides are numbers."""
    return tensor.layout is torch.strided and all(
        isinstance(size, int) for size in (*tensor.shape, *tensor.stride())
    )


def _is_other(result: torch.Tensor, strides: Strides) -> bool:
    """Whether strides differ where it matters: an axis of one element may have any."""
    return any(
        own != true for size, own, true in zip(result.shape, result.stride(), strides, strict=True) if size > 1
    )


def _by_structured_kernel(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int, Strides]:
    """What the operation's own kernel for tensors without bytes says: for structured kernels, what really runs."""

    def without_bytes(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    with private.without_modes():
        plain_args, plain_kwargs = pytree.tree_map(without_bytes, (tuple(args), dict(kwargs)))
        made = pytree.tree_leaves(func(*plain_args, **plain_kwargs))
    return {place: leaf.stride() for place, leaf in enumerate(made) if isinstance(leaf, torch.Tensor)}


def _contiguous(result: torch.Tensor) -> Strides:
    strides, step = [], 1
    for size in reversed(result.shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _first_contiguous(_args: Sequence[Any], results: Sequence[Any]) -> dict[int, Strides]:
    return {0: _contiguous(results[0])} if isinstance(results[0], torch.Tensor) else {}


def _first_in_input_format(position: int) -> Callable[[Sequence[Any], Sequence[Any]], dict[int, Strides]]:
    """Channels last where the input at that position is, else contiguous."""

    def rule(args: Sequence[Any], results: Sequence[Any]) -> dict[int, Strides]:
        data = args[position]
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        if data.dim() in formats and data.is_contiguous(memory_format=formats[data.dim()]):
            return {}
        return _first_contiguous(args, results)

    return rule


# Kernels that are not structured, as ATen's sources allocate their first result (CPU).
_RULES: Mapping[str, Callable[[Sequence[Any], Sequence[Any]], dict[int, Strides]]] = {
    "aten::native_layer_norm_backward": _first_contiguous,
    "aten::mse_loss_backward": _first_contiguous,
    "aten::native_batch_norm": _first_in_input_format(0),
    "aten::native_batch_norm_backward": _first_in_input_format(1),
}

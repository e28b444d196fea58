"""Strides that PyTorch's fake kernels get wrong, put right.

A fake kernel that is a decomposition gives its result the strides of another operand than the kernel that really runs.
A `reshape` behind it is then traced as a view, which fails when the program runs, or as a copy, which costs bytes that
eager does not need. It happens only where an operand is not contiguous.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends import _torch_private as private
from neaptide.frontends._torch_sizes import example_of
from neaptide.ir.registry import Trait
from neaptide.ops import registry

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
    if rule is None and not _may_be_tried(func):
        return found
    operands = _tensors((args, kwargs))
    taken = operands
    if not all(map(_is_plain, operands)):
        args, kwargs = pytree.tree_map(example_of, (tuple(args), dict(kwargs)))
        operands = _tensors((args, kwargs))
    if all(not _is_plain(operand) or operand.is_contiguous() for operand in operands):
        return found
    own = {private.storage_key(leaf.untyped_storage()) for leaf in taken if leaf.layout is torch.strided}
    made, structure = pytree.tree_flatten(found)
    results = [example_of(leaf) for leaf in made]
    if not all(map(_is_plain, (*operands, *_tensors(results)))) or any(
        private.storage_key(t.untyped_storage()) in own for t in _tensors(made)
    ):
        return found
    expected = rule(args, results) if rule is not None else _as_tried(func, args, kwargs, results)
    wrong = {place: true for place, true in expected.items() if _is_other(results[place], true)}
    for place, true in wrong.items():
        shape = made[place].shape
        made[place] = made[place].new_empty_strided(
            shape, true if _is_plain(made[place]) else _dense(shape, true)
        )
    return pytree.tree_unflatten(made, structure) if wrong else found


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


@functools.cache
def _may_be_tried(func: Any) -> bool:
    """Whether the fake kernel is a decomposition, and a few elements tell what the real one does."""
    row = registry().find(str(func))
    return (
        row is not None
        and row.is_a(Trait.ELEMENTWISE)
        and not row.rng
        and not row.writes
        and private.has_python_kernel(func)
    )


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether shape and strides are numbers."""
    return tensor.layout is torch.strided and all(
        isinstance(size, int) for size in (*tensor.shape, *tensor.stride())
    )


def _is_other(result: torch.Tensor, strides: Strides) -> bool:
    """Whether strides differ where it matters: an axis of one element may have any."""
    return any(
        own != true
        for size, own, true in zip(result.shape, result.stride(), strides, strict=True)
        if size > 1
    )


def _as_tried(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[Any]
) -> dict[int, Strides]:
    """Strides of the results of an elementwise operation, from its real kernel on two elements an axis.

    Such a kernel orders the axes of its result by the strides of its operands, whatever the sizes.
    """

    def tiny(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        shape = [min(size, 2) for size in leaf.shape]
        elements = torch.zeros(2 ** (leaf.dim() + 1), dtype=leaf.dtype, device=leaf.device)
        return elements.as_strided(shape, _tiny_strides(leaf))

    with private.no_modes():
        tiny_args, tiny_kwargs = pytree.tree_map(tiny, (tuple(args), dict(kwargs)))
        tried = pytree.tree_leaves(func(*tiny_args, **tiny_kwargs))
    return {
        place: _dense(result.shape, made.stride())
        for place, (result, made) in enumerate(zip(results, tried, strict=True))
        if isinstance(result, torch.Tensor)
    }


def _tiny_strides(tensor: torch.Tensor) -> Strides:
    """Strides of two elements an axis, in the order of the tensor's own; 0 where it repeats its elements."""
    strides = [0] * tensor.dim()
    step = 1 if tensor.dim() == 0 or 1 in tensor.stride() else 2
    for axis in sorted(range(tensor.dim()), key=lambda axis: (tensor.stride(axis), -axis)):
        if tensor.stride(axis):
            strides[axis] = step
            step *= min(tensor.shape[axis], 2)
    return tuple(strides)


def _dense(shape: Sequence[int], order: Sequence[int]) -> Strides:
    """Strides without gaps, the axes ordered as by other strides."""
    strides, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda axis: (order[axis], -axis)):
        strides[axis] = step
        step *= max(shape[axis], 1) if isinstance(shape[axis], int) else shape[axis]
    return tuple(strides)


def _first_contiguous(_args: Sequence[Any], results: Sequence[Any]) -> dict[int, Strides]:
    result = results[0]
    return {0: _dense(result.shape, range(result.dim(), 0, -1))} if isinstance(result, torch.Tensor) else {}


def _first_in_input_format(position: int) -> Callable[[Sequence[Any], Sequence[Any]], dict[int, Strides]]:
    """Channels last where the input at that position is, else contiguous."""

    def rule(args: Sequence[Any], results: Sequence[Any]) -> dict[int, Strides]:
        data = args[position]
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        if data.dim() in formats and data.is_contiguous(memory_format=formats[data.dim()]):
            return {}
        return _first_contiguous(args, results)

    return rule


# Kernels that are not elementwise, by how ATen's sources allocate their first result.
_RULES: Mapping[str, Callable[[Sequence[Any], Sequence[Any]], dict[int, Strides]]] = {
    "aten::native_layer_norm_backward": _first_contiguous,
    "aten::mse_loss_backward": _first_contiguous,
    "aten::_softmax_backward_data": _first_contiguous,
    "aten::_log_softmax_backward_data": _first_contiguous,
    "aten::native_batch_norm": _first_in_input_format(0),
    "aten::native_batch_norm_backward": _first_in_input_format(1),
}

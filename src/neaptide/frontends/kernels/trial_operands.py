"""Operands on which a kernel is tried, and what calls have in common that one trial speaks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from neaptide.frontends import _torch_private as private

MOST_BYTES = 64 << 20
"""Of operands and results together; calls of more bytes are not tried."""
_SMALL = 8  # integers below it choose among kernels or layouts; others are sizes
_CUT_TO = 2  # elements of an axis that is made shorter: one would be no axis to a layout


class _Cut(NamedTuple):
    """Along which axis an operation may be tried on a part: positions of `arguments` and `results` that begin with it.

    `length` is the position of the number that says how long it is.
    """

    arguments: tuple[int, ...]
    results: tuple[int, ...] = (0,)
    length: int | None = None


_CUTS: Mapping[str, _Cut] = {
    "native_layer_norm": _Cut((0,), (0, 1, 2)),
    "native_layer_norm_backward": _Cut((0, 1, 3, 4)),
    "native_group_norm": _Cut((0,), (0, 1, 2), 3),
    "native_group_norm_backward": _Cut((0, 1, 2, 3), (0,), 5),
    "native_batch_norm": _Cut((0,)),
    "_native_batch_norm_legit": _Cut((0,)),
    "native_batch_norm_backward": _Cut((0, 1)),
    "_fused_rms_norm": _Cut((0,), (0, 1)),
    "convolution": _Cut((0,)),
    "convolution_backward": _Cut((0, 1)),
}
# As elementwise operations: all operands have the same shape, or repeat their elements along an axis.
_EVEN = frozenset(
    {"mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy"}
    | {"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "soft_margin_loss_backward"}
    | {"binary_cross_entropy_backward", "binary_cross_entropy_with_logits"}
    | {"_softmax_backward_data", "_log_softmax_backward_data"}
)

Made = tuple[tuple[Any, ...], dict[str, Any]]


def kind_of(
    args: Sequence[Any], kwargs: Mapping[str, Any], operands: Sequence[torch.Tensor], results: Sequence[Any]
) -> tuple[Any, ...]:
    """What decides, beside the sizes, which dtypes and layouts a call gives: it is the same for many layers.

    `operands` are the tensors among the arguments, `results` what the fake kernel gave, both with numbers for sizes.
    """
    named = [(name, _plain(item)) for name, item in kwargs.items()]
    ones = [tuple([size == 1 for size in leaf.shape]) for leaf in results if isinstance(leaf, torch.Tensor)]
    return (_plain(args), *named, *map(_layout, operands), *ones)


def _plain(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return "tensor"
    if isinstance(item, (tuple, list)):
        return tuple([_plain(part) for part in item])
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return item if isinstance(item, int) and abs(item) < _SMALL else type(item)
    return type(item) if isinstance(item, (torch.SymInt, torch.SymFloat)) else item


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Dtype, device, how the axes lie in memory, which of them have one element only or repeat it."""
    shape, strides = tensor.shape, tensor.stride()
    axes = [axis for axis in range(len(shape)) if shape[axis] != 1]
    return (
        tensor.dtype,
        tensor.device,
        len(shape),
        tuple(sorted(axes, key=lambda axis: (strides[axis], -axis))),
        tuple([axis for axis in axes if not strides[axis]]),
        is_dense(shape, strides),
    )


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements fill their bytes without gaps, in whatever order."""
    return all(
        size <= 1 or own == full
        for size, own, full in zip(shape, strides, dense(shape, strides), strict=True)
    )


def dense(shape: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    """Strides without gaps, the axes ordered as by other strides."""
    strides, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda axis: (order[axis], -axis)):
        strides[axis] = step
        step *= max(shape[axis], 1) if isinstance(shape[axis], int) else shape[axis]
    return tuple(strides)


def trial_operands(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[Any], *, is_elementwise: bool
) -> tuple[Made, bool] | None:
    """Real tensors in the place of fake ones, whose sizes are numbers: as few elements as the operation can be tried on.

    With them, whether they have the sizes of the call; None where they would take too many bytes. Every axis of an
    elementwise operation may be cut.
    """
    given: Made = (tuple(args), dict(kwargs))
    if is_elementwise or name in _EVEN:
        return _each(lambda t: _strided(t, _few(t), ones=True), given), False
    cut = _CUTS.get(name)
    if cut is not None and _can_cut(cut, args, results):
        made = [_each(_shorter if at in cut.arguments else _whole, item) for at, item in enumerate(args)]
        if cut.length is not None:
            made[cut.length] = _CUT_TO
        return (tuple(made), _each(_whole, dict(kwargs))), False
    tensors = [leaf for leaf in pytree.tree_leaves((given, results)) if isinstance(leaf, torch.Tensor)]
    if sum(_span(leaf.shape, leaf.stride()) * leaf.itemsize for leaf in tensors) > MOST_BYTES:
        return None
    return _each(_whole, given), True


def _each(make: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, make, tree)


def _can_cut(cut: _Cut, args: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether all tensors that should begin with the axis do."""
    tensors = [args[place] for place in cut.arguments if place < len(args)]
    tensors += [results[place] for place in cut.results if results[place] is not None]
    sizes = {t.shape[0] if isinstance(t, torch.Tensor) and t.dim() else 0 for t in tensors}
    return len(sizes) == 1 and sizes.pop() >= _CUT_TO


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return _strided(tensor, (tuple(tensor.shape), tensor.stride()))


def _shorter(tensor: torch.Tensor) -> torch.Tensor:
    shape, strides = (_CUT_TO, *tensor.shape[1:]), tensor.stride()
    return _strided(tensor, (shape, dense(shape, strides) if is_dense(tensor.shape, strides) else strides))


def _few(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two elements an axis, in the order of the tensor's own, and with a gap where it has one."""
    shape = tuple([min(size, _CUT_TO) for size in tensor.shape])
    strides = [0] * tensor.dim()
    step = 1 if tensor.dim() == 0 or 1 in tensor.stride() else 2
    for axis in sorted(range(tensor.dim()), key=lambda axis: (tensor.stride(axis), -axis)):
        if tensor.stride(axis):
            strides[axis] = step
            step *= shape[axis]
    return shape, tuple(strides)


def _strided(
    tensor: torch.Tensor, geometry: tuple[Sequence[int], Sequence[int]], *, ones: bool = False
) -> torch.Tensor:
    """Zeros, which are valid indices, too; or ones, by which can be divided."""
    make = torch.ones if ones else torch.zeros
    span = max(1 + sum((n - 1) * stride for n, stride in zip(*geometry, strict=True)), 1)
    return make(span, dtype=tensor.dtype, device=tensor.device).as_strided(*geometry)


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum(max(size - 1, 0) * stride for size, stride in zip(shape, strides, strict=True))


def storage_number(tensor: torch.Tensor, storages: Sequence[int]) -> int | None:
    """Which of some storages has the bytes of a tensor; None for bytes of its own."""
    key = private.storage_key(tensor.untyped_storage())
    return storages.index(key) if key in storages else None

"""What kernels really give, where PyTorch's fake kernels say otherwise.

A fake kernel that is written in Python may give its results another dtype, other strides or other bytes than the kernel
that really runs. All that follows in the trace would then be other operations than eager's: sums in another precision,
copies that are views. So the first call of a kind is tried: the real kernel runs on made-up operands, and what it gives
counts for all calls of the kind.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from neaptide.errors import CaptureError
from neaptide.frontends import _torch_private as private
from neaptide.frontends.kernels.card_results import CARD_RESULTS
from neaptide.frontends.kernels.trial_operands import dense, is_dense, kind_of, storage_number, trial_operands
from neaptide.frontends.recording._torch_sizes import example_of
from neaptide.ir.registry import OpSpec, Trait
from neaptide.ops import registry

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
        **CARD_RESULTS,
    }
)
"""By operation: a function of the same arguments that gives tensors of the right geometry."""


# -- what real kernels give


# Kernels that work on any numbers of the right shapes. Those that take pivots or a workspace of others do not.
_TRIED = frozenset(
    {Trait.ELEMENTWISE, Trait.CONTRACTION, Trait.CONVOLUTION, Trait.ATTENTION, Trait.REDUCTION}
    | {Trait.NORMALISATION, Trait.POOLING, Trait.GATHER, Trait.LOSS, Trait.COPY}
)
# What these reserve for their backward pass has a size of the library's own.
_SIZED_BY_LIBRARY = frozenset({torch.ops.aten._cudnn_rnn.default})  # noqa: SLF001
_FAILURES = (RuntimeError, ValueError, TypeError, IndexError, AssertionError, MemoryError)


class _Result(NamedTuple):
    """One result of a kernel: its dtype, strides by which its axes are ordered (None where it has gaps), the operand
    whose bytes it has (None for bytes of its own).
    """

    dtype: torch.dtype
    order: tuple[int, ...] | None
    operand: int | None
    shape: tuple[int, ...] | None = None  # where only the kernel's library knows it


_Results = tuple[_Result | None, ...]
_NOT_TRIED: _Results = ()
_known: dict[Any, _Results] = {}  # by kind of call, for as long as the process lives


_not_tried_on: set[str] = {"meta"}


@contextlib.contextmanager
def no_trials_on(device: str) -> Iterator[None]:
    """While open, no kernel is tried on devices of a type: none is there, or it is another one."""
    _not_tried_on.add(device)
    try:
        yield
    finally:
        _not_tried_on.discard(device)


def with_true_results(found: Any, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a fake kernel returned, put right where the real one gives something else. O(arguments of the call)."""
    row = _row_to_try(func)
    if row is None:
        return found
    given = _tensors((args, kwargs))
    operands = [example_of(operand) for operand in given]
    made, structure = pytree.tree_flatten(found)
    results = [example_of(leaf) for leaf in made]
    if not all(map(_has_numbers, (*operands, *_tensors(results)))):
        return found
    kind = (
        func,
        private.kernel_flags(),
        kind_of(args, kwargs, operands, results),
        _sizes(func, args, operands),
    )
    known = _known.get(kind)
    if known is None:
        known = _try(func, row, args, kwargs, results)
        if known is None:
            return found
        _known[kind] = known
    if known is _NOT_TRIED:
        return found
    storages = [private.storage_key(operand.untyped_storage()) for operand in given]
    is_changed = False
    for place, (leaf, true) in enumerate(zip(results, known, strict=True)):
        if true is None and isinstance(leaf, torch.Tensor):  # a gradient that nobody asked for
            made[place] = None
            is_changed = True
        elif true is not None and isinstance(leaf, torch.Tensor):
            operand = storage_number(made[place], storages)
            is_where = _have_same_bytes(operand, true.operand, storages)
            if true.operand is not None and not is_where:
                raise _refusal(func, f"result {place} has the bytes of an operand")
            is_number = made[place] is leaf
            shape = true.shape if true.shape is not None and is_number else made[place].shape
            if not is_where or leaf.dtype != true.dtype or _differ(leaf, true, shape):
                strides = leaf.stride() if true.order is None else dense(leaf.shape, true.order)
                order = strides if is_number and true.shape is None else dense(shape, strides)
                made[place] = made[place].new_empty_strided(shape, order, dtype=true.dtype)
                is_changed = True
    return pytree.tree_unflatten(made, structure) if is_changed else found


def _have_same_bytes(one: int | None, other: int | None, storages: Sequence[int]) -> bool:
    """Whether two operands are one storage, as operands of a trial are not; or both are no operand."""
    return one is other if one is None or other is None else storages[one] == storages[other]


@functools.cache
def _row_to_try(func: Any) -> OpSpec | None:
    """The row of an operation whose fake kernel may be wrong and whose real one can be tried; else None."""
    row = registry().find(str(func))
    is_tried = (
        row is not None
        and func.namespace == "aten"
        and private.has_python_kernel(func)
        and (row.traits & _TRIED or row.rng)
        and not row.writes
        and not row.is_a(Trait.VIEW)
        and not any(item.alias_info for item in func._schema.returns)  # noqa: SLF001 - the schema has no public name
    )
    return row if is_tried else None


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _has_numbers(tensor: torch.Tensor) -> bool:
    """Whether shape and strides are numbers."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type not in _not_tried_on
        and all(isinstance(size, int) for size in (*tensor.shape, *tensor.stride()))
    )


def _try(
    func: Any, row: OpSpec, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[Any]
) -> _Results | None:
    """What the real kernel gives; None where a call of fewer bytes may tell."""
    args, kwargs = pytree.tree_map(example_of, (tuple(args), dict(kwargs)))
    name = func.overloadpacket.__name__
    with private.bare_kernels(draws=row.rng):
        try:
            made = trial_operands(name, args, kwargs, results, is_elementwise=row.is_a(Trait.ELEMENTWISE))
            if made is None:
                return None
            (real_args, real_kwargs), is_whole = made
            tried = pytree.tree_leaves(func(*real_args, **real_kwargs))
        except _FAILURES:  # no kernel here, or none for such operands: eager will say so
            return _NOT_TRIED
        if len(tried) != len(results):
            raise _refusal(func, f"it gives {len(results)} results, not {len(tried)}")
        storages = [private.storage_key(t.untyped_storage()) for t in _tensors((real_args, real_kwargs))]
        for place, (leaf, real) in enumerate(zip(results, tried, strict=True)):
            are_tensors = isinstance(real, torch.Tensor) and isinstance(leaf, torch.Tensor)
            if is_whole and are_tensors and leaf.shape != real.shape and func not in _SIZED_BY_LIBRARY:
                told = f"result {place} has the shape {tuple(real.shape)}, not {tuple(leaf.shape)}"
                raise _refusal(func, told)
        return tuple(
            [_seen(leaf, storages, has_shape=is_whole and func in _SIZED_BY_LIBRARY) for leaf in tried]
        )


def _sizes(func: Any, args: Sequence[Any], operands: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """The sizes of a call whose results only a library knows the sizes of; of others they decide nothing."""
    if func not in _SIZED_BY_LIBRARY:
        return ()
    return (*[tuple(operand.shape) for operand in operands], *[arg for arg in args if isinstance(arg, int)])


def _seen(leaf: Any, storages: Sequence[int], *, has_shape: bool) -> _Result | None:
    if not isinstance(leaf, torch.Tensor):
        return None
    order = leaf.stride() if is_dense(leaf.shape, leaf.stride()) else None
    shape = tuple(leaf.shape) if has_shape else None
    return _Result(leaf.dtype, order, storage_number(leaf, storages), shape)


def _differ(believed: torch.Tensor, true: _Result, shape: Sequence[Any]) -> bool:
    """Whether shapes differ, or strides where it matters: an axis of one element may have any."""
    if true.shape is not None and tuple(believed.shape) != tuple(shape):
        return True
    strides = believed.stride() if true.order is None else dense(believed.shape, true.order)
    return any(
        own != other
        for size, own, other in zip(believed.shape, believed.stride(), strides, strict=True)
        if size > 1
    )


def _refusal(func: Any, what: str) -> CaptureError:
    return CaptureError(
        f"PyTorch's fake kernel of {func} is wrong: {what}",
        why="the rest of the step would be recorded on a wrong tensor",
        next_step="write the step without this operation, or run it eagerly",
    )

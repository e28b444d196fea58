"""How rows of axes are written: dim strings, element by element, and dims that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from neaptide.ir.axes import Merge, Need, OpAxis
from neaptide.ir.nodes import Arg, Ref, refs
from neaptide.ir.registry import AxisRow, Call
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr

Axes = Callable[[Call], Iterable[OpAxis]]
Whole = Callable[[Call], Iterable[int]]
Dims = Callable[[Call], Mapping[int, int] | None]

_ONE = SizeExpr.const(1)


@dataclass(frozen=True, slots=True)
class Axed:
    """A block of operation names, as `ops.table.overloads` reads them, and the row that they share.

    `shapes` are those of the row.
    """

    names: str
    row: AxisRow
    shapes: tuple[int, ...] = ()


def slot(call: Call, position: int, name: str | None = None) -> int | None:
    """The slot of a tensor argument; None when it is absent."""
    arg = call.arg(position, name)
    return arg.slot if isinstance(arg, Ref) else None


def keyword_slot(call: Call, name: str) -> int | None:
    """The slot of a tensor argument that is only given by name; None when it is absent."""
    arg = call.node.kwarg(name)
    return arg.slot if isinstance(arg, Ref) else None


def slots(call: Call, position: int) -> tuple[int, ...]:
    """The slots of all tensors in a list argument."""
    return tuple(ref.slot for ref in refs(call.arg(position)))


def operand(call: Call, number: int) -> Value:
    """The value in a slot."""
    return call.graph.values[call.node.inputs[number]]


def result(call: Call, position: int) -> int | None:
    """Number of the output that is result `position` of the operation; None when it is not made."""
    results = call.node.results
    if not isinstance(results, tuple):
        return position if position < len(call.node.outputs) else None
    found = results[position] if position < len(results) else None
    return found.slot if isinstance(found, Ref) else None


def number(arg: Arg, default: int | None = None) -> int | None:
    """A constant integer argument; `default` for anything else."""
    if isinstance(arg, SizeExpr) and arg.is_constant:
        return arg.constant_value()
    return arg if isinstance(arg, int) and not isinstance(arg, bool) else default


def numbers(arg: Arg) -> tuple[int, ...] | None:
    """A list of constant integers; None for anything else."""
    if not isinstance(arg, tuple):
        return None
    found = tuple(n for item in arg if (n := number(item)) is not None)
    return found if len(found) == len(arg) else None


def padding_at(call: Call, position: int, place: int, count: int) -> tuple[tuple[int, int], ...]:
    """One of `count` numbers of padding, for `Window.padding`; empty where the list has fewer, which stand for all."""
    found = numbers(call.arg(position)) or ()
    return ((position, place),) if len(found) == count else ()


def dim_of(arg: Arg, rank: int) -> int | None:
    """A dim argument counted from the front; None where it is no constant or lies outside."""
    dim = number(arg)
    if dim is None or not -max(rank, 1) <= dim < max(rank, 1):
        return None
    return dim % rank if rank else 0


def op_axis(
    call: Call,
    operands: Iterable[tuple[int | None, int]],
    results: Iterable[tuple[int | None, int | Merge]],
    *needs: Need,
    unread: Iterable[int | None] = (),
    **more: Any,
) -> Iterator[OpAxis]:
    """An axis, unless one operand would carry it in two dims; what is absent is left out. `more` is as in `OpAxis`."""
    found: dict[int, int] = {}
    for where, dim in operands:
        if where is not None and found.setdefault(where, dim) != dim:
            return
    made = {k: how for k, how in results if k is not None}
    if len(made) == len(call.node.outputs):
        unseen = tuple(where for where in unread if where is not None)
        yield OpAxis(found, made, needs, unread=unseen, **more)


def einsum(text: str, *, first: int = 0, addend: int | None = None) -> AxisRow:
    """A row from a dim string such as `mk,kn->mn`, for tensors from argument `first` on; other letters are summed.

    With an `addend`, the tensor argument of that position is broadcast to the result and added to it, times `beta`.
    """
    left, _, right = text.partition("->")
    terms, out = left.split(","), right

    def axes(call: Call) -> Iterator[OpAxis]:
        here = [slot(call, first + k) for k in range(len(terms))]
        added = None if addend is None else slot(call, addend)
        shape = call.output().shape
        for letter in dict.fromkeys(left.replace(",", "")):
            operands = [(s, t.index(letter)) for s, t in zip(here, terms, strict=True) if letter in t]
            if letter in out:
                dim = out.index(letter)
                if added is not None and (at := broadcast_dim(operand(call, added), shape, dim)) is not None:
                    operands.append((added, at))
                yield from op_axis(call, operands, [(0, dim)])
            elif added is None or number(call.arg(3, "beta", 1)) == 0:
                yield from op_axis(call, operands, [(0, Merge.SUM)])
            else:
                yield from op_axis(call, operands, [(0, Merge.SUM)], Need.ADDEND, addends=(added,))

    groups: tuple[tuple[int, ...], ...] = tuple((first + k,) for k in range(len(terms)))
    if addend is not None:
        groups = tuple((addend, *group) for group in groups)
    return AxisRow(axes, linear=groups)


def broadcast_dim(value: Value, shape: tuple[SizeExpr, ...], dim: int) -> int | None:
    """The dim of an operand that lies under a dim of the result; None where the operand is repeated along it."""
    at = dim - len(shape) + len(value.shape)
    if at < 0 or value.shape[at] != shape[dim]:
        return None
    return at


def product_axes(call: Call, right: int = 1, *, sums: bool = True) -> Iterator[OpAxis]:
    """`(..., m, k) @ (..., k, n)`, of arguments 0 and `right`, the dims in front broadcast; without `sums` none along k."""
    left_slot, right_slot = slot(call, 0), slot(call, right)
    if left_slot is None or right_slot is None or left_slot == right_slot:
        return
    a, b, made = operand(call, left_slot), operand(call, right_slot), call.output().shape
    if len(a.shape) < 2 or len(b.shape) < 2:
        return
    rank = len(made)
    for dim in range(rank - 2):
        found = ((s, broadcast_dim(v, made, dim)) for s, v in ((left_slot, a), (right_slot, b)))
        if made[dim] != _ONE:
            yield from op_axis(call, [(s, at) for s, at in found if at is not None], [(0, dim)])
    yield from op_axis(call, [(left_slot, len(a.shape) - 2)], [(0, rank - 2)])
    yield from op_axis(call, [(right_slot, len(b.shape) - 1)], [(0, rank - 1)])
    if sums:
        inside = [(left_slot, len(a.shape) - 1), (right_slot, len(b.shape) - 2)]
        yield from op_axis(call, inside, [(0, Merge.SUM)])


def pointwise_axes(call: Call, positions: tuple[int, ...] | None = None) -> Iterator[OpAxis]:
    """Those of `pointwise`."""
    if positions is None:
        here = [s for s in range(len(call.node.inputs)) if not operand(call, s).is_host_scalar]
    else:
        here = [s for p in positions if (s := slot(call, p)) is not None]
    # What has no result overwrites its first operand.
    shape = (call.outputs() or call.inputs())[0].shape
    if any(value.shape != shape for value in call.outputs()):
        return
    if any(not _fits(operand(call, s), shape) for s in here):
        return
    for dim, extent in enumerate(shape):
        if extent != _ONE:
            found = ((s, broadcast_dim(operand(call, s), shape, dim)) for s in here)
            operands = [(s, at) for s, at in found if at is not None]
            yield from op_axis(call, operands, [(k, dim) for k in range(len(call.node.outputs))])


def pointwise(*linear: tuple[int, ...], positions: tuple[int, ...] | None = None) -> AxisRow:
    """Element by element, operands (those at `positions`, or all) broadcast to the shape of the result."""
    return AxisRow(partial(pointwise_axes, positions=positions), linear=linear)


def _fits(value: Value, shape: tuple[SizeExpr, ...]) -> bool:
    """Whether an operand broadcasts to a shape."""
    if len(value.shape) > len(shape):
        return False
    return all(a in (b, _ONE) for a, b in zip(reversed(value.shape), reversed(shape), strict=False))


def all_but(whole: Whole, *linear: tuple[int, ...], operands: tuple[int, ...] = (0,)) -> AxisRow:
    """The arguments `operands` and all results have the same dims: each may be run in parts but those of `whole`."""

    def axes(call: Call) -> Iterator[OpAxis]:
        here = [s for p in operands for s in slots(call, p)]
        yield from same_dims(call, here, range(len(call.node.outputs)), whole(call))

    return AxisRow(axes, linear=linear)


def along(call: Call, dims: Iterable[int], here: Iterable[int]) -> Iterator[OpAxis]:
    """One axis for each of some dims, but those of one element, in which all of some operands and all results have it."""
    given = tuple(here)
    for dim in dims:
        if call.output().shape[dim] != _ONE:
            yield from op_axis(
                call, [(s, dim) for s in given], [(k, dim) for k in range(len(call.node.outputs))]
            )


def same_dims(call: Call, here: Iterable[int], outs: Iterable[int], whole: Iterable[int]) -> Iterator[OpAxis]:
    """One axis for each dim that all of some operands and results have with the same extent; some are needed whole."""
    given, made, kept = tuple(here), tuple(outs), frozenset(whole)
    values = [*(operand(call, s) for s in given), *(call.output(k) for k in made)]
    ranks = {len(value.shape) for value in values}
    if len(ranks) != 1:
        return
    for dim in range(ranks.pop()):
        extents = {value.shape[dim] for value in values}
        if len(extents) == 1 and _ONE not in extents:
            everywhere = [(s, dim) for s in given]
            yield from op_axis(call, everywhere, [(k, dim) for k in made], whole=dim in kept)


def moved(to: Dims, *linear: tuple[int, ...]) -> AxisRow:
    """Dim d of operand 0 is dim `to(call)[d]` of every result; dims without an entry are needed whole."""

    def axes(call: Call) -> Iterator[OpAxis]:
        for dim, at in (to(call) or {}).items():
            if call.inputs()[0].shape[dim] != _ONE and all(
                value.shape[at] == call.inputs()[0].shape[dim] for value in call.outputs()
            ):
                yield from op_axis(call, [(0, dim)], [(k, at) for k in range(len(call.node.outputs))])

    return AxisRow(axes, linear=linear)


def argument_dims(position: int, name: str | None = None) -> Whole:
    """The dims that a list argument names; all dims where it is empty or not known."""

    def whole(call: Call) -> Iterable[int]:
        rank = len(call.inputs()[0].shape)
        dims = numbers(call.arg(position, name))
        return {dim % rank for dim in dims} if dims else range(rank)

    return whole


def argument_dim(position: int, name: str | None = None, default: int | None = None) -> Whole:
    """The dim that an argument names; all dims where it is not known."""

    def whole(call: Call) -> Iterable[int]:
        rank = len(call.inputs()[0].shape)
        dim = dim_of(call.arg(position, name, default), rank)
        return range(rank) if dim is None else (dim,)

    return whole

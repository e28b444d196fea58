"""What an element of a mask is, as a formula of its indices: proves a mask for all sizes at once.

A mask whose sizes vary cannot be computed. Its element at indices `(b, h, i, j)` can be worked out: `arange(T)` holds
its index, views rename indices, comparisons of indices stay comparisons. Operations that are not known here give no
formula, and nothing is proved then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import torch

from neaptide.frontends.recording.recording import Record
from neaptide.symbolic.ranges import Interval, bound
from neaptide.symbolic.size_expr import SizeExpr

_aten = torch.ops.aten


@dataclass(frozen=True)
class NotPositive:
    """True where a size is 0 or less."""

    size: SizeExpr


@dataclass(frozen=True)
class Choice:
    """One of two numbers, by a condition."""

    condition: NotPositive
    yes: Any
    no: Any


Element: TypeAlias = SizeExpr | bool | float | NotPositive | Choice
Index: TypeAlias = tuple[SizeExpr, ...]
Rule: TypeAlias = Callable[[Record, Index], Element]

_ZERO = SizeExpr.const(0)


class _UnknownElementError(Exception):
    """An operation, or a comparison, that no formula is known for."""


def is_causal_for_all_sizes(mask: Record) -> bool:
    """Whether a mask is proved to let row `i` see columns `j <= i` only, whatever its sizes. O(records after it).

    The mask is square in its last two dims; of truths, or of 0 and minus infinity.
    """
    index = tuple(SizeExpr.dim(f"index{axis}") for axis in range(len(mask.result.shape)))
    seen = NotPositive(index[-1] - index[-2])
    try:
        return _element(mask, index) in (seen, Choice(seen, 0.0, float("-inf")))
    except _UnknownElementError:
        return False


def _element(record: Any, index: Index) -> Element:
    """The element of a record at an index, which may have more axes in front and broadcasts over axes of one element."""
    if isinstance(record, int) and not isinstance(record, bool):
        return SizeExpr.const(record)
    if isinstance(record, (bool, float, SizeExpr)):
        return record
    rule = _RULES.get(record.target) if isinstance(record, Record) and record.kind == "call" else None
    if rule is None:
        raise _UnknownElementError
    shape = record.result.shape
    own = index[len(index) - len(shape) :]
    return rule(record, tuple(_ZERO if size == 1 else at for size, at in zip(shape, own, strict=True)))


def _whole(record: Any, index: Index) -> SizeExpr:
    """An element that is a whole number; a truth counts as 0 or 1."""
    element = _element(record, index)
    if isinstance(element, bool):
        return SizeExpr.const(int(element))
    if isinstance(element, SizeExpr):
        return element
    raise _UnknownElementError


def _may_be_negative(place: SizeExpr) -> bool:
    low = bound(place, {}).low
    return low is None or low < 0


def _axis(record: Record, index: Index) -> int:
    return int(record.args[1] if len(record.args) > 1 else 0) % len(index)


# -- operations ---------------------------------------------------------------------------------------------------


def _of_two(make: Callable[[SizeExpr, SizeExpr], Element]) -> Rule:
    def rule(record: Record, index: Index) -> Element:
        if len(record.args) > 2 or record.kwargs:  # scaled
            raise _UnknownElementError
        return make(_whole(record.args[0], index), _whole(record.args[1], index))

    return rule


def _not_positive(difference: SizeExpr) -> Element:
    within = bound(difference, {})
    if within.high is not None and within.high <= 0:
        return True
    return False if within.low is not None and within.low > 0 else NotPositive(difference)


def _is_zero(difference: SizeExpr) -> bool:
    within = bound(difference, {})
    if within == Interval(0, 0):
        return True
    if 0 not in within:
        return False
    raise _UnknownElementError


def _both(record: Record, index: Index) -> Element:
    left, right = _element(record.args[0], index), _element(record.args[1], index)
    if left is True or left == right:
        return right
    if right is True:
        return left
    if left is False or right is False:
        return False
    raise _UnknownElementError


def _chosen(record: Record, index: Index) -> Element:
    condition, yes, no = (_element(record.args[position], index) for position in range(3))
    if isinstance(condition, bool):
        return yes if condition else no
    if isinstance(condition, NotPositive):
        return Choice(condition, yes, no)
    raise _UnknownElementError


def _true(record: Record, _index: Index) -> Element:
    if record.kwargs.get("dtype") is not torch.bool:
        raise _UnknownElementError
    return True


def _unsqueezed(record: Record, index: Index) -> Element:
    axis = _axis(record, index)
    return _element(record.args[0], index[:axis] + index[axis + 1 :])


def _sliced(record: Record, index: Index) -> Element:
    given: list[Any] = [*record.args, *(None, 0, 0, None, 1)[len(record.args) :]]
    at, step = int(given[1]) % len(index), given[4]
    first = _whole(given[2] or 0, ())
    if step != 1 or _may_be_negative(first):
        raise _UnknownElementError
    return _element(record.args[0], (*index[:at], index[at] + first, *index[at + 1 :]))


def _joined(record: Record, index: Index) -> Element:
    """A slice of length 1 in front of another tensor, where one formula holds for both."""
    parts = record.args[0]
    axis = _axis(record, index)
    if len(parts) != 2 or parts[0].result.shape[axis] != 1:
        raise _UnknownElementError

    def at(part: Record, place: SizeExpr) -> SizeExpr:
        return _whole(part, (*index[:axis], place, *index[axis + 1 :]))

    first, behind = at(parts[0], _ZERO), at(parts[1], index[axis] - 1)
    begin = at(parts[1], _ZERO - 1)
    if first != begin:
        raise _UnknownElementError
    return behind


def _added_up(record: Record, index: Index) -> Element:
    each = _whole(record.args[0], index)
    if not each.is_constant:
        raise _UnknownElementError
    return each * (index[_axis(record, index)] + 1)


def _looked_up(record: Record, index: Index) -> Element:
    source, places = record.args
    if any(place is None for place in places) or len(places) != len(source.result.shape):
        raise _UnknownElementError
    found = tuple(_whole(place, index) for place in places)
    if any(map(_may_be_negative, found)):  # would count from the end
        raise _UnknownElementError
    return _element(source, found)


_RULES: Mapping[Any, Rule] = MappingProxyType(
    {
        _aten.arange.default: lambda _record, index: index[0],
        _aten.arange.start: lambda record, index: index[0] + _whole(record.args[0], ()),
        _aten.add.Tensor: _of_two(lambda a, b: a + b),
        _aten.sub.Tensor: _of_two(lambda a, b: a - b),
        _aten.le.Tensor: _of_two(lambda a, b: _not_positive(a - b)),
        _aten.ge.Tensor: _of_two(lambda a, b: _not_positive(b - a)),
        _aten.lt.Tensor: _of_two(lambda a, b: _not_positive(a - b + 1)),
        _aten.gt.Tensor: _of_two(lambda a, b: _not_positive(b - a + 1)),
        _aten.eq.Tensor: _of_two(lambda a, b: _is_zero(a - b)),
        _aten.ne.Scalar: _of_two(lambda a, b: not _is_zero(a - b)),
        _aten.bitwise_and.Tensor: _both,
        _aten.where.self: _chosen,
        _aten.new_ones.default: _true,
        _aten.scalar_tensor.default: lambda record, _index: _element(record.args[0], ()),
        _aten.unsqueeze.default: _unsqueezed,
        _aten.expand.default: lambda record, index: _element(record.args[0], index),
        _aten.slice.Tensor: _sliced,
        _aten.cat.default: _joined,
        _aten.cumsum.default: _added_up,
        _aten.index.Tensor: _looked_up,
    }
)

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

_ZERO = SizeExpr.const(0)


class _UnknownElementError(Exception):
    """An operation, or a comparison, that no formula is known for."""


def is_causal_for_all_sizes(mask: Record) -> bool:
    """Whether a mask is proved to let row `i` see columns `j <= i` only, whatever its sizes. O(records behind it).

    Args:
        mask: square in its last two dims; of truths, or of 0 and minus infinity.
    """
    index = tuple(SizeExpr.dim(f"index{axis}") for axis in range(len(mask.result.shape)))
    seen = NotPositive(index[-1] - index[-2])
    try:
        return _element(mask, index) in (seen, Choice(seen, 0.0, float("-inf")))
    except _UnknownElementError:
        return False


def _element(record: Any, index: Index) -> Element:
    if not isinstance(record, Record):
        return _number(record)
    rule = _RULES.get(record.target)
    if rule is None or record.kind != "call":
        raise _UnknownElementError
    return rule(record, index)


def _number(content: Any) -> Element:
    if isinstance(content, (bool, float, SizeExpr)):
        return content
    if isinstance(content, int):
        return SizeExpr.const(content)
    raise _UnknownElementError


def _operand(record: Record, position: int, index: Index) -> Element:
    """The element of an operand that broadcasts to the result."""
    operand = record.args[position]
    return _element(operand, _broadcast(operand, index)) if isinstance(operand, Record) else _number(operand)


def _broadcast(operand: Record, index: Index) -> Index:
    shape = operand.result.shape
    own = index[len(index) - len(shape) :]
    return tuple(_ZERO if size == 1 else at for size, at in zip(shape, own, strict=True))


def _whole(element: Element) -> SizeExpr:
    """A truth counts as 0 or 1."""
    if isinstance(element, bool):
        return SizeExpr.const(int(element))
    if isinstance(element, SizeExpr):
        return element
    raise _UnknownElementError


def _may_be_negative(place: SizeExpr) -> bool:
    low = bound(place, {}).low
    return low is None or low < 0


def _axis(record: Record, position: int, among: int) -> int:
    axis = record.args[position] if len(record.args) > position else 0
    return int(axis) % among


# -- operations ---------------------------------------------------------------------------------------------------


def _counted(_record: Record, index: Index) -> Element:
    return index[0]


def _counted_from(record: Record, index: Index) -> Element:
    return index[0] + _whole(_number(record.args[0]))


def _sum(record: Record, index: Index) -> Element:
    if len(record.args) > 2 or record.kwargs:  # scaled
        raise _UnknownElementError
    return _whole(_operand(record, 0, index)) + _whole(_operand(record, 1, index))


def _difference(record: Record, index: Index) -> Element:
    if len(record.args) > 2 or record.kwargs:
        raise _UnknownElementError
    return _whole(_operand(record, 0, index)) - _whole(_operand(record, 1, index))


def _compared(test: Callable[[SizeExpr], Element]) -> Callable[[Record, Index], Element]:
    def rule(record: Record, index: Index) -> Element:
        return test(_whole(_operand(record, 0, index)) - _whole(_operand(record, 1, index)))

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
    left, right = _operand(record, 0, index), _operand(record, 1, index)
    if left is True or left == right:
        return right
    if right is True:
        return left
    if left is False or right is False:
        return False
    raise _UnknownElementError


def _chosen(record: Record, index: Index) -> Element:
    condition, yes, no = (_operand(record, position, index) for position in range(3))
    if isinstance(condition, bool):
        return yes if condition else no
    if isinstance(condition, NotPositive):
        return Choice(condition, yes, no)
    raise _UnknownElementError


def _true(record: Record, _index: Index) -> Element:
    if record.kwargs.get("dtype") is not torch.bool:
        raise _UnknownElementError
    return True


def _scalar(record: Record, _index: Index) -> Element:
    return _number(record.args[0])


def _unsqueezed(record: Record, index: Index) -> Element:
    axis = _axis(record, 1, len(index))
    return _element(record.args[0], index[:axis] + index[axis + 1 :])


def _expanded(record: Record, index: Index) -> Element:
    return _operand(record, 0, index)


def _sliced(record: Record, index: Index) -> Element:
    given: list[Any] = [*record.args, *(None, 0, 0, None, 1)[len(record.args) :]]
    at, step = int(given[1]) % len(index), given[4]
    first = _whole(_number(given[2] or 0))
    if step != 1 or _may_be_negative(first):
        raise _UnknownElementError
    return _element(record.args[0], (*index[:at], index[at] + first, *index[at + 1 :]))


def _joined(record: Record, index: Index) -> Element:
    """A slice of length 1 in front of another tensor, where one formula holds for both."""
    parts = record.args[0]
    axis = _axis(record, 1, len(index))
    if len(parts) != 2 or parts[0].result.shape[axis] != 1:
        raise _UnknownElementError

    def at(part: Record, place: SizeExpr) -> SizeExpr:
        return _whole(_element(part, (*index[:axis], place, *index[axis + 1 :])))

    first, behind = at(parts[0], _ZERO), at(parts[1], index[axis] - 1)
    begin = at(parts[1], _ZERO - 1)
    if first != begin:
        raise _UnknownElementError
    return behind


def _added_up(record: Record, index: Index) -> Element:
    axis = _axis(record, 1, len(index))
    each = _whole(_element(record.args[0], index))
    if not each.is_constant:
        raise _UnknownElementError
    return each * (index[axis] + 1)


def _looked_up(record: Record, index: Index) -> Element:
    source, places = record.args
    if any(place is None for place in places) or len(places) != len(source.result.shape):
        raise _UnknownElementError
    found = tuple(_whole(_element(place, _broadcast(place, index))) for place in places)
    if any(map(_may_be_negative, found)):  # would count from the end
        raise _UnknownElementError
    return _element(source, found)


_RULES: Mapping[Any, Callable[[Record, Index], Element]] = MappingProxyType(
    {
        _aten.arange.default: _counted,
        _aten.arange.start: _counted_from,
        _aten.add.Tensor: _sum,
        _aten.sub.Tensor: _difference,
        _aten.le.Tensor: _compared(_not_positive),
        _aten.ge.Tensor: _compared(lambda difference: _not_positive(-difference)),
        _aten.lt.Tensor: _compared(lambda difference: _not_positive(difference + 1)),
        _aten.gt.Tensor: _compared(lambda difference: _not_positive(1 - difference)),
        _aten.eq.Tensor: _compared(_is_zero),
        _aten.ne.Scalar: _compared(lambda difference: not _is_zero(difference)),
        _aten.bitwise_and.Tensor: _both,
        _aten.where.self: _chosen,
        _aten.new_ones.default: _true,
        _aten.scalar_tensor.default: _scalar,
        _aten.unsqueeze.default: _unsqueezed,
        _aten.expand.default: _expanded,
        _aten.slice.Tensor: _sliced,
        _aten.cat.default: _joined,
        _aten.cumsum.default: _added_up,
        _aten.index.Tensor: _looked_up,
    }
)

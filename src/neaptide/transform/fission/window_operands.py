"""What a loop with windows is handed beside the operands of its region: numbers of rows, and where there are none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.nodes import Arg, Named, Ref, Source
from neaptide.ops.rewritten import CLAMP, FULL, PAD, RANGE
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.intervals import Interval

_ONE = SizeExpr.const(1)


@dataclass(frozen=True, slots=True)
class Beside(ABC):
    """An operand that a loop has beside those of its region, cut along dim 0.

    Attributes:
        interval: of one part.
        extent: elements along the axis of the value that it is about.
    """

    interval: Interval
    units: int
    extent: int
    device: str
    rank: int = 1

    name: ClassVar[str]
    dtype: ClassVar[str]

    @property
    def scale(self) -> int:
        """Elements for a unit."""
        return self.interval.scale

    @property
    def beyond(self) -> int:
        """Elements of a part beside these."""
        return self.interval.beyond

    @property
    def count(self) -> int:
        """Elements of all parts."""
        return self.scale * self.units + self.beyond

    @abstractmethod
    def make(self, edit: GraphEdit, anchor: int, source: Source) -> int:
        """The operand, made in front of a node."""

    def _made(self, edit: GraphEdit, draft: NodeDraft, name: str, count: int, anchor: int) -> int:
        made = edit.fresh(
            name, self.dtype, [SizeExpr.const(count), *[_ONE] * (self.rank - 1)], device=self.device
        )
        edit.insert_before(anchor, replace(draft, outputs=(made,)))
        return made

    def _settings(self) -> tuple[tuple[str, Arg], ...]:
        return ("device", Named("device", self.device)), ("dtype", Named("dtype", self.dtype))


class Rows(Beside):
    """By element of an interval, which has at least the part's own, the number of the element of a value that is nearest to it."""

    __slots__ = ()
    name = "rows"
    dtype = "int64"

    def make(self, edit: GraphEdit, anchor: int, source: Source) -> int:
        """As `Beside.make`."""
        first = -self.interval.before
        numbers = NodeDraft(RANGE, (), (), (first, first + self.count), self._settings(), source=source)
        made = self._made(edit, numbers, "row_numbers", self.count, anchor)
        nearest = NodeDraft(CLAMP, (made,), (), (Ref(0), 0, self.extent - 1), source=source)
        return self._made(edit, nearest, "rows", self.count, anchor)


class Outside(Beside):
    """By element of an interval whether it lies outside a value, with dims of one element behind."""

    __slots__ = ()
    name = "outside"
    dtype = "bool"

    def make(self, edit: GraphEdit, anchor: int, source: Source) -> int:
        """As `Beside.make`."""
        ones = [1] * (self.rank - 1)
        inside = NodeDraft(FULL, (), (), ((self.extent, *ones), False), self._settings(), source=source)
        made = self._made(edit, inside, "inside", self.extent, anchor)
        before = self.interval.before
        widths: Arg = (*[0] * (2 * len(ones)), before, self.count - self.extent - before)
        padded = NodeDraft(PAD, (made,), (), (Ref(0), widths, True), source=source)
        return self._made(edit, padded, "outside", self.count, anchor)

"""What a loop with windows is handed beside the operands of its region: numbers of rows, and where there are none."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.nodes import Arg, Named, Ref, Source
from neaptide.ops.rewritten import CLAMP, FULL, PAD, RANGE
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.intervals import Interval

_INDEX = "int64"


@dataclass(frozen=True, slots=True)
class Rows:
    """By element of an interval the number of the element of a value that is nearest to it.

    Attributes:
        interval: of one part; it has at least the part's own elements.
        units: of the axis.
        extent: elements of the value along the axis.
        device: where it lies.
    """

    interval: Interval
    units: int
    extent: int
    device: str

    name = "rows"
    dtype = _INDEX

    @property
    def scale(self) -> int:
        """Elements for a unit."""
        return self.interval.scale

    @property
    def beyond(self) -> int:
        """Elements of a part beside these."""
        return self.interval.beyond

    @property
    def rank(self) -> int:
        """Number of dims."""
        return 1

    def make(self, edit: GraphEdit, anchor: int, source: Source) -> int:
        """As `Beside.make`."""
        first = -self.interval.before
        count = self.scale * self.units + self.beyond
        settings = (("device", Named("device", self.device)), ("dtype", Named("dtype", _INDEX)))
        numbers = edit.fresh("row_numbers", _INDEX, [SizeExpr.const(count)], device=self.device)
        edit.insert_before(
            anchor,
            NodeDraft(RANGE, (), (numbers,), (first, first + count), settings, source=source),
        )
        nearest = edit.fresh("rows", _INDEX, [SizeExpr.const(count)], device=self.device)
        edit.insert_before(
            anchor,
            NodeDraft(CLAMP, (numbers,), (nearest,), (Ref(0), 0, self.extent - 1), source=source),
        )
        return nearest


@dataclass(frozen=True, slots=True)
class Outside:
    """By element of an interval whether it lies outside a value, with dims of one element behind.

    Attributes:
        interval: of one part.
        units: of the axis.
        extent: elements of the value along the axis.
        rank: number of dims.
        device: where it lies.
    """

    interval: Interval
    units: int
    extent: int
    rank: int
    device: str

    name = "outside"
    dtype = "bool"

    @property
    def scale(self) -> int:
        """Elements for a unit."""
        return self.interval.scale

    @property
    def beyond(self) -> int:
        """Elements of a part beside these."""
        return self.interval.beyond

    def make(self, edit: GraphEdit, anchor: int, source: Source) -> int:
        """As `Beside.make`."""
        ones = [SizeExpr.const(1)] * (self.rank - 1)
        settings = (("device", Named("device", self.device)), ("dtype", Named("dtype", self.dtype)))
        inside = edit.fresh("inside", self.dtype, [SizeExpr.const(self.extent), *ones], device=self.device)
        shape: Arg = (self.extent, *[1] * (self.rank - 1))
        edit.insert_before(anchor, NodeDraft(FULL, (), (inside,), (shape, False), settings, source=source))
        count = self.scale * self.units + self.beyond
        widths: Arg = (
            *[0] * (2 * (self.rank - 1)),
            self.interval.before,
            count - self.extent - self.interval.before,
        )
        outside = edit.fresh("outside", self.dtype, [SizeExpr.const(count), *ones], device=self.device)
        edit.insert_before(
            anchor, NodeDraft(PAD, (inside,), (outside,), (Ref(0), widths, True), source=source)
        )
        return outside

"""The graph of one trip of a region whose windows overlap, and what the loop is handed beside the operands of the region.

A part of each value is its interval. A member takes of each operand what it reads, which may be less than others need of it.
Before a window reads elements that lie outside the value, they are overwritten by what stands for them, zero for a
convolution: in place, as they hold nothing that anybody needs. That is done in each trip, so that all are alike. In the
middle of the axis it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from neaptide.errors import RewriteError
from neaptide.ir.axes import OpAxis
from neaptide.ir.edits.edit import GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Named, Node, Ref, Source
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ir.values import Value, contiguous_strides
from neaptide.ops.aten.dialect import CLAMP, FILL, FULL, PAD, RANGE, ROWS, SLICE
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.body import PartBody
from neaptide.transform.fission.intervals import Interval, Intervals
from neaptide.transform.fission.split import PartShapes, Split, plain_size, same_layout
from neaptide.transform.rewrite import refused

_ZERO = SizeExpr.const(0)
_ONE = SizeExpr.const(1)


class WindowShapes(PartShapes):
    """As `PartShapes`, for values whose parts are intervals."""

    def __init__(
        self,
        graph: Graph,
        registry: OpRegistry,
        split: Split,
        intervals: Intervals,
        axes: Mapping[int, OpAxis],
    ) -> None:
        super().__init__(graph, registry, split)
        self.intervals, self.axes = intervals, axes
        self.shortest = (intervals.units - 1) % split.step.constant_value() + 1
        for interval in (*intervals.made.values(), *intervals.read.values()):
            if self.fewest(interval) < 1:
                raise RewriteError(
                    "a part would have nothing of a value that windows skip", next_step="take fewer parts"
                )

    def fewest(self, interval: Interval) -> int:
        """Elements of an interval in the shortest part."""
        return interval.scale * self.shortest + interval.beyond

    def count(self, interval: Interval) -> SizeExpr:
        """Elements of an interval."""
        return interval.scale * self.part + interval.beyond

    def extent(self, value: Value) -> SizeExpr:
        """As `PartShapes.extent`."""
        return self.count(self.intervals.made[value.id])

    def step(self, value: Value) -> SizeExpr:
        """As `PartShapes.step`."""
        return self.intervals.made[value.id].scale * self.split.step

    def is_sliced(self, number: int) -> bool:
        """As `PartShapes.is_sliced`: parts that neither overlap nor end elsewhere than the value."""
        if number not in self.split.axes:
            return False
        made = self.intervals.made[number]
        return made.before == made.after == 0 and self.whole(number) == made.scale * self.intervals.units

    def whole(self, number: int) -> int:
        """Elements of a value along the axis."""
        return self.graph.values[number].shape[self.split.axes[number].dim].constant_value()

    def arguments(self, node: Node) -> tuple[Arg, ...]:
        """As `PartShapes.arguments`; what windows read beyond the edge is among the operands."""
        args = super().arguments(node)
        window = self.axes[node.id].window
        if window is None or window.inverse:
            return args
        if window.before and not window.padding:
            raise refused(node, "does not say its padding dim by dim")
        changed = list(args)
        for position, place in window.padding:
            if position < len(changed) and isinstance(padding := changed[position], tuple):
                changed[position] = (*padding[:place], window.padding_in_part, *padding[place + 1 :])
        return tuple(changed)

    def extent_in_part(self, node: Node, extent: SizeExpr) -> SizeExpr | None:
        """As `PartShapes.extent_in_part`, for the extent of the first result."""
        whole = self.graph.values[node.outputs[0]]
        along = self.split.axes.get(whole.id)
        return self.extent(whole) if along is not None and extent == whole.shape[along.dim] else None


@dataclass(frozen=True, slots=True)
class Beside:
    """An operand that a loop has beside those of its region, cut along dim 0, with dims of one element after.

    Either `rows`: by element of an interval, which has at least the part's own, the number of the element of a value that is
    nearest to it; or `outside`: whether it lies outside the value.

    Attributes:
        interval: of one part.
        extent: elements along the axis of the value that it is about.
    """

    name: str
    dtype: str
    interval: Interval
    units: int
    extent: int
    device: str
    rank: int = 1

    def make(self, edit: GraphEdit, anchor: int, source: Source) -> int:
        """The operand, made in front of a node."""

        def made(name: str, op: str, inputs: tuple[int, ...], args: tuple[Arg, ...], elements: int) -> int:
            settings = () if inputs else (("device", device), ("dtype", Named("dtype", self.dtype)))
            shape = [SizeExpr.const(elements), *[_ONE] * (self.rank - 1)]
            value = edit.fresh(name, self.dtype, shape, device=self.device)
            edit.insert_before(anchor, NodeDraft(op, inputs, (value,), args, settings, source=source))
            return value

        before, device = self.interval.before, Named("device", self.device)
        count = self.interval.scale * self.units + self.interval.beyond  # elements of all parts
        if self.name == "rows":
            numbers = made("row_numbers", RANGE, (), (-before, count - before), count)
            return made("rows", CLAMP, (numbers,), (Ref(0), 0, self.extent - 1), count)
        ones = [1] * (self.rank - 1)
        inside = made("inside", FULL, (), ((self.extent, *ones), False), self.extent)
        widths: Arg = (*[0] * (2 * len(ones)), before, count - self.extent - before)
        return made("outside", PAD, (inside,), (Ref(0), widths, True), count)


@dataclass
class WindowBody(PartBody):
    """As `PartBody`, of parts that overlap; `handed_beside` are values of the body."""

    shapes: WindowShapes
    handed_beside: dict[Beside, int] = field(default_factory=dict)

    def beside(self) -> tuple[int, ...]:
        return tuple(self.handed_beside.values())

    def _read_as_it_lies(self, node: Node) -> tuple[int, ...]:
        return node.inputs

    def _input(self, number: int) -> int:
        """An operand of the region: whole where its parts overlap."""
        if number not in self.shapes.split.axes or self.shapes.is_sliced(number):
            return super()._input(number)
        value = self.graph.values[number]
        assert value.storage is not None
        block = self.graph.storages[value.storage]
        self.storages.append(replace(block, id=len(self.storages), nbytes=block.nbytes, name=value.name))
        self.values.append(replace(value, id=len(self.values), storage=len(self.storages) - 1, version=0))
        return len(self.values) - 1

    def _take_part(self, number: int, handed: int) -> None:
        """Take from an operand what a part reads; for what lies outside it, what lies nearest."""
        if self.shapes.is_sliced(number):
            super()._take_part(number, handed)
            return
        whole, dim = self.graph.values[number], self._dim(number)
        wanted = self.shapes.value(replace(whole, offset=_ZERO))
        if whole.strides[dim] == _ZERO and self._is_no_longer(wanted.shape[dim], whole.shape[dim]):
            # All elements along the axis are one: any of them are the part.
            self.number[number] = self._slice(handed, dim, _ZERO, wanted.shape[dim])
            return
        picked = replace(wanted, strides=contiguous_strides(wanted.shape))
        if not same_layout(wanted, picked):
            raise RewriteError(f"%{whole.name} is not contiguous, and parts of it overlap")
        interval, device = self.shapes.intervals.made[number], self.device(handed)
        extent, units = self.shapes.whole(number), self.shapes.intervals.units
        rows = self._beside(Beside("rows", "int64", interval, units, extent, device))
        made = self.fresh(f"part_of_{whole.name}", picked, device)
        self.append(ROWS, (handed, rows), made, (Ref(0), dim, Ref(1)))
        self.number[number] = made

    def _is_no_longer(self, part: SizeExpr, extent: SizeExpr) -> bool:
        """Whether a part has no more elements than the whole, the first and largest one too."""
        step = self.shapes.split.step.constant_value()
        most = part.evaluate(dict.fromkeys(part.dims(), step))
        return most <= extent.constant_value()

    def operands(self, node: Node) -> tuple[int, ...]:
        return tuple(self._operand(node, slot, value) for slot, value in enumerate(node.inputs))

    def _operand(self, node: Node, slot: int, value: int) -> int:
        """What stands for an operand of a member: what it reads, with its own filling outside."""
        number = self.number[value]
        read = self.shapes.intervals.read.get((node.id, slot))
        if read is None:
            return number
        spec = self.registry.require(node.op)
        made = self.shapes.intervals.made[value]
        if read != made:
            if any(access.storage == self.graph.values[value].storage for access in node.effects.writes):
                raise RewriteError(f"{node.op} overwrites a part of what others read")
            number = self._crop(number, self._dim(value), made, read)
            is_unread = slot in self.shapes.axes[node.id].unread
            if not (is_unread or spec.is_a(Trait.ELEMENTWISE) or spec.is_a(Trait.COPY)):
                whole = replace(self.graph.values[value], offset=_ZERO)
                number = self.copied(number, self.shapes.cut(whole, self.shapes.count(read)))
        window = self.shapes.axes[node.id].window
        if window is not None and not window.inverse and slot in window.operands:
            self._fill(node, number, value, read, window.fill)
        return number

    def _result(self, value: int) -> int:
        """The part's own elements of what leaves the region, or its term of a sum."""
        if value in self.shapes.split.sums:
            return self.number[value]
        made = self.shapes.intervals.made[value]
        return self._crop(self.number[value], self._dim(value), made, Interval(made.scale, 0, 0))

    def _crop(self, number: int, dim: int, made: Interval, read: Interval) -> int:
        """A view of what is read of what is made."""
        if made == read:
            return number
        return self._slice(number, dim, SizeExpr.const(made.before - read.before), self.shapes.count(read))

    def _fill(self, node: Node, number: int, value: int, read: Interval, fill: float) -> None:
        """Overwrite elements outside a value, of which a part has some at its ends."""
        extent, units = self.shapes.whole(value), self.shapes.intervals.units
        front, back = self.shapes.intervals.outside(read, extent)
        if not front and not back:
            return
        here = self.values[number]
        strides = zip(here.strides, here.shape, strict=True)
        if here.dtype[0] not in "fb" or any(s == _ZERO and n != _ONE for s, n in strides):
            raise refused(node, f"reads beyond the edge of %{here.name}, where nothing can be filled in")
        dim = self._dim(value)
        held = Interval(read.scale, read.before, max(read.after, -read.before))
        rank = len(here.shape) - dim
        mask = self._beside(Beside("outside", "bool", held, units, extent, self.device(number), rank))
        if max(front, back) > self.shapes.fewest(read):
            self._fill_where(number, self._crop(mask, 0, held, read), fill)
            return
        count = self.shapes.count(read)
        for start, length in ((_ZERO, front), (count - back, back)):
            if length:
                ends = start, SizeExpr.const(length)
                self._fill_where(self._slice(number, dim, *ends), self._slice(mask, 0, *ends), fill)

    def _fill_where(self, number: int, mask: int, fill: float) -> None:
        here = self.values[number]
        made = replace(here, id=len(self.values), name=self.untaken(f"filled_{self._root(number)}"))
        self.values.append(made)
        self.append(FILL, (number, mask), made.id, (Ref(0), Ref(1), fill))

    def _slice(self, number: int, dim: int, start: SizeExpr, length: SizeExpr) -> int:
        """A view of some elements along a dim of a value of the body."""
        here = self.values[number]
        made = replace(
            here,
            id=len(self.values),
            name=self.untaken(f"rows_of_{self._root(number)}"),
            shape=(*here.shape[:dim], length, *here.shape[dim + 1 :]),
            offset=here.offset + start * here.strides[dim],
        )
        self.values.append(made)
        ends = plain_size(start), plain_size(start + length)
        self.append(SLICE, (number,), made.id, (Ref(0), dim, *ends, 1))
        return made.id

    def _beside(self, wanted: Beside) -> int:
        """A part of an operand of the loop that is none of the region's."""
        if wanted not in self.handed_beside:
            shape = (self.shapes.count(wanted.interval), *[_ONE] * (wanted.rank - 1))
            like = Value(0, wanted.name, wanted.dtype, shape, contiguous_strides(shape))
            self.handed_beside[wanted] = self.fresh(wanted.name, like, wanted.device)
        return self.handed_beside[wanted]

    def _root(self, number: int) -> str:
        """The name of what a value of the body is a view of."""
        return self.storages[self._storage_of(number)].name

    def _dim(self, value: int) -> int:
        return self.shapes.split.axes[value].dim

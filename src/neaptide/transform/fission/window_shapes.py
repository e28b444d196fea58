"""Shapes and arguments of a region whose windows overlap: a part of each value is its interval."""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.errors import RewriteError
from neaptide.ir.axes import OpAxis
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.intervals import Interval, Intervals
from neaptide.transform.fission.split import PartShapes, Split


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
        self.shortest = (intervals.units - 1) % split.step_size.constant_value() + 1
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
        return self.intervals.made[value.id].scale * self.split.step_size

    def is_sliced(self, number: int) -> bool:
        """As `PartShapes.is_sliced`: parts that neither overlap nor end elsewhere than the value."""
        if number not in self.split.axes:
            return False
        made = self.intervals.made[number]
        return made.before == made.after == 0 and self.whole(number) == made.scale * self.intervals.units

    def whole(self, number: int) -> int:
        """Elements of a value along the axis."""
        return self.graph.values[number].shape[self.split.axes[number].dim].constant_value()

    def arguments(self, node: Node) -> tuple[tuple[Arg, ...], tuple[tuple[str, Arg], ...]]:
        """As `PartShapes.arguments`; what windows read beyond the edge is among the operands."""
        args, kwargs = super().arguments(node)
        window = self.axes[node.id].window
        if window is None or window.inverse:
            return args, kwargs
        if window.before and not window.padding:
            raise RewriteError(
                f"{node.op} does not say its padding dim by dim", where=node.source.location or None
            )
        changed = list(args)
        for position, place in window.padding:
            if position < len(changed) and isinstance(padding := changed[position], tuple):
                changed[position] = (*padding[:place], window.padding_in_part, *padding[place + 1 :])
        return tuple(changed), kwargs

    def _extents(self, node: Node, arg: Arg) -> Arg:
        """The extent of the first result as an argument, or a list of one, for a part."""
        if isinstance(arg, tuple) and len(arg) == 1:
            return (self._extents(node, arg[0]),)
        whole = self.graph.values[node.outputs[0]]
        axes = self.split.axes
        if whole.id not in axes or arg not in (
            extent := whole.shape[axes[whole.id].dim],
            extent.constant_value(),
        ):
            raise RewriteError(
                f"{node.op} is given {arg}, and that is no extent of the axis",
                where=node.source.location or None,
            )
        part = self.extent(whole)
        return part.constant_value() if part.is_constant else part

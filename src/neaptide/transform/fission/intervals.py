"""Which elements of each value a part of a region with windows makes and reads.

What is added up over the axis, as the gradient of a weight is, takes a part's own elements alone, so that each counts once.

A part stands for the units `[first, last)` of the axis. Of a value with `scale` elements for a unit it makes the elements
`[scale * first - before, scale * last + after)`: its own, and those of its neighbours that windows after it read. Some of
them lie outside the value, in front of its first element or after its last. Those hold any number, and each window
that reads them puts its own filling there first. So all parts run the same operations, those at the border too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd, lcm

from neaptide.analysis.axes.windows import Scaled, WindowAxis, counted, follow_windows
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along, Merge, OpAxis, Window
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import FILLING_OPS, Node
from neaptide.ir.registry import OpRegistry
from neaptide.transform.fission.region import Region, find_region
from neaptide.transform.rewrite import refused

# A region in which more passes change something has a storage that is read by a window and written in place after it.
_MOST_PASSES = 20


@dataclass(frozen=True, slots=True)
class Interval:
    """Elements of a value for a part of the axis: `scale` for each unit, `before` and `after` beyond its own."""

    scale: int
    before: int
    after: int

    @property
    def beyond(self) -> int:
        """Elements beside the part's own."""
        return self.before + self.after

    def joined(self, other: Interval) -> Interval:
        """The least that holds both."""
        return Interval(self.scale, max(self.before, other.before), max(self.after, other.after))


@dataclass(frozen=True, slots=True)
class Intervals:
    """What a part makes by value, and what a member takes of an operand in parts, by node and slot."""

    units: int
    made: Mapping[int, Interval]
    read: Mapping[tuple[int, int], Interval]

    def outside(self, interval: Interval, extent: int) -> tuple[int, int]:
        """Elements that lie outside a value in the parts at its ends: in front of it, and after."""
        return max(interval.before, 0), max(interval.scale * self.units + interval.after - extent, 0)


def window_region(
    graph: Graph, registry: OpRegistry, nodes: Collection[int], seeds: Mapping[int, Scaled]
) -> tuple[Region, WindowAxis, Intervals]:
    """The region of some nodes along an axis with windows, the axis, and what a part makes. O(size of the graph)."""
    for node in map(graph.nodes.__getitem__, sorted(set(nodes))):
        if node.op in FILLING_OPS:
            raise RewriteError(
                f"{node.op} fills a result of the loop around, which overlapping parts would do twice"
            )
    axis = follow_windows(graph, registry, seeds, nodes)
    for number in sorted(set(nodes) - axis.members.keys()):
        node = graph.nodes[number]
        raise refused(node, "needs the whole axis, or does not depend on it")
    axes = {value: Along(at.dim) for value, at in axis.values.items()}
    region = find_region(graph, registry, nodes, axes, axis.sums)
    if private := axis.private.intersection(region.outputs):
        name = graph.values[min(private)].name
        raise RewriteError(f"%{name} means something within its part only, and leaves the region")
    return region, axis, find_intervals(graph, region, axis)


def find_intervals(graph: Graph, region: Region, axis: WindowAxis) -> Intervals:
    """The intervals of a region whose results are made without overlap. O(passes * members)."""
    return _Finder(graph, region, axis).run()


class _Finder:
    def __init__(self, graph: Graph, region: Region, axis: WindowAxis) -> None:
        self.graph, self.region, self.axis = graph, region, axis
        self.scale = _whole_scales(axis, region, graph)
        self.made: dict[int, Interval] = {}  # by storage
        self.read: dict[tuple[int, int], Interval] = {}

    def run(self) -> Intervals:
        units = self._units()
        for value in self.region.outputs:
            if value not in self.axis.sums:
                self._need(value, Interval(self.scale[value], 0, 0))
        for _ in range(_MOST_PASSES):
            before = dict(self.made)
            for number in reversed(self.region.members):
                self._visit(self.graph.nodes[number])
            if self.made == before:
                break
        else:
            raise RewriteError(
                "a member overwrites what a window reads, and the window reads what it makes of that"
            )
        for value in self.region.inputs:
            found = self._of(value)
            if found is not None and found.beyond < 0:
                self._need(value, Interval(found.scale, found.before, -found.before))
        made = {value: found for value in self.scale if (found := self._of(value)) is not None}
        return Intervals(units, made, self.read)

    def _units(self) -> int:
        """Length of the axis: results begin and end with it, and so does what is added up."""
        found = set()
        for value in (*self.region.outputs, *self._added_up()):
            if value in self.axis.sums:
                continue
            if value not in self.scale:
                raise RewriteError(
                    f"%{self.graph.values[value].name} leaves the region, and does not carry the axis"
                )
            extent = self.graph.values[value].shape[self.axis.values[value].dim].constant_value()
            units, rest = divmod(extent, self.scale[value])
            if rest:
                raise RewriteError(
                    f"the {extent} elements of %{self.graph.values[value].name} are no multiple of"
                    f" {self.scale[value]}, which windows beside it make of each part"
                )
            found.add(units)
        if len(found) != 1:
            raise RewriteError("the results of the region do not end at the same place of the axis")
        return found.pop()

    def _added_up(self) -> Iterator[int]:
        """Operands that members add up along the axis, each element once."""
        for number in self.region.members:
            node = self.graph.nodes[number]
            if not self.axis.sums.isdisjoint(node.outputs):
                yield from (node.inputs[slot] for slot in counted(self.axis.members[number]))

    def _of(self, value: int) -> Interval | None:
        storage = self.graph.values[value].storage
        return None if storage is None else self.made.get(storage)

    def _need(self, value: int, interval: Interval) -> None:
        storage = self.graph.values[value].storage
        assert storage is not None
        known = self.made.get(storage)
        if known is not None and known.scale != interval.scale:
            raise RewriteError(f"%{self.graph.values[value].name} lies in its storage under two scales")
        self.made[storage] = interval if known is None else interval.joined(known)

    def _visit(self, node: Node) -> None:
        axis = self.axis.members[node.id]
        results = [v for k, v in enumerate(node.outputs) if not isinstance(axis.results[k], Merge)]
        if not self.axis.sums.isdisjoint(node.outputs):
            wanted = Interval(self.scale[node.inputs[counted(axis)[0]]], 0, 0)
        else:
            # A node that hands nothing on writes to its operands.
            asked = [found for v in results or node.inputs if (found := self._of(v)) is not None]
            if not asked:
                return
            wanted = _made_at_once(axis, reduce(Interval.joined, asked))
        for value in results:
            self._need(value, wanted)
        for slot in axis.operands:
            value = node.inputs[slot]
            read = _read(axis, slot, wanted, self.scale[value])
            self.read[node.id, slot] = read
            self._need(value, read)


def _whole_scales(axis: WindowAxis, region: Region, graph: Graph) -> dict[int, int]:
    """By value at or in the region, elements for a unit: the smallest whole numbers."""
    here = {v for n in region.members for v in (*graph.nodes[n].inputs, *graph.nodes[n].outputs)}
    scales = {value: axis.values[value].scale for value in sorted(here) if value in axis.values}
    denominator = lcm(*(scale.denominator for scale in scales.values()))
    whole = {value: int(scale * denominator) for value, scale in scales.items()}
    common = gcd(*whole.values())
    return {value: scale // common for value, scale in whole.items()}


def _made_at_once(axis: OpAxis, wanted: Interval) -> Interval:
    """What a node makes that is to make some elements: each element of an operand is enlarged as a whole."""
    window = axis.window
    if window is None or not window.inverse:
        return wanted
    times = window.stride
    return Interval(wanted.scale, -(-wanted.before // times) * times, -(-wanted.after // times) * times)


def _read(axis: OpAxis, slot: int, made: Interval, scale: int) -> Interval:
    """What an operand is read for some elements of the results."""
    window: Window | None = axis.window
    if window is None or slot not in window.operands:
        return made
    if window.inverse:
        return Interval(scale, made.before // window.stride, made.after // window.stride)
    reach = window.dilation * (window.kernel - 1) + 1
    before = made.before * window.stride + window.before
    after = (made.after - 1) * window.stride - window.before + reach
    return Interval(scale, before, after)

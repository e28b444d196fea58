"""A region whose windows overlap becomes one loop that runs it in parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from neaptide.analysis.axes.windows import Scaled, WindowAxis, follow_windows
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import FILLING_OPS
from neaptide.ir.registry import OpRegistry
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.intervals import Intervals, find_intervals
from neaptide.transform.fission.loop import put_loop
from neaptide.transform.fission.region import Region, find_region
from neaptide.transform.fission.split import Split
from neaptide.transform.fission.window_body import window_body
from neaptide.transform.fission.window_shapes import WindowShapes


def extract_window_loop(
    graph: Graph, registry: OpRegistry, nodes: Collection[int], seeds: Mapping[int, Scaled], parts: int
) -> Edited:
    """Put one loop in the place of some nodes, whose windows read elements of neighbouring parts. O(size of the graph).

    Elements that two parts read are made in both.
    """
    region, axis, intervals = window_region(graph, registry, nodes, seeds)
    units = intervals.units
    if not 2 <= parts <= units:
        raise RewriteError(f"an axis of {units} cannot be split into {parts} parts")
    sizes = {node: line.sizes for node, line in axis.members.items()}
    axes = {value: Along(axis.values[value].dim) for value in intervals.made}
    split = Split(SizeExpr.const(units), -(-units // parts), axes, region.sums, sizes)
    shapes = WindowShapes(graph, registry, split, intervals, axis.members)
    body, beside = window_body(graph, registry, region, shapes)
    return put_loop(graph, region, shapes, body, beside)


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
        raise RewriteError(
            f"{node.op} needs the whole axis, or does not depend on it", where=node.source.location or None
        )
    axes = {value: Along(at.dim) for value, at in axis.values.items()}
    region = find_region(graph, registry, nodes, axes, axis.sums)
    if private := axis.private.intersection(region.outputs):
        name = graph.values[min(private)].name
        raise RewriteError(f"%{name} means something within its part only, and leaves the region")
    return region, axis, find_intervals(graph, region, axis)

"""How often the body of a loop runs, and under which sizes: the one reading that every room shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Loop, Node

Binding = Mapping[str, int]


def trips(
    graph: Graph, node: Node, loop: Loop, binding: Binding | None = None
) -> Iterator[tuple[int, dict[str, int]]]:
    """Numbers of trips and the sizes of the body in them: the full parts, and the last one where it is shorter.

    A dim of the body that names the length of a part (the extent of a sliced input along the sliced axis) is
    bound to that length; all others are those of the graph around it. O(slices).

    Raises:
        SymbolicError: a dim of the graph around the loop has no value.
    """
    around = binding or {}
    count = loop.trip_count.evaluate(around)
    full, last = dict(around), dict(around)
    for part in loop.slices:
        extent = loop.body.values[loop.body.inputs[part.input]].shape[part.axis]
        if str(extent) in extent.dims():
            step = part.step.evaluate(around)
            length = graph.values[node.inputs[part.input]].shape[part.axis].evaluate(around)
            full[str(extent)] = min(step, length)
            last[str(extent)] = length - (count - 1) * step
    if full == last:
        yield count, full
        return
    if count > 1:
        yield count - 1, full
    yield 1, last

"""What a loop costs: its body's cost under the sizes of each trip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Loop, Node
from neaptide.ir.schedule import Schedule

Binding = Mapping[str, int]
NodeSeconds = Callable[[Graph, Node, Binding], float]
NodeBytes = Callable[[Graph, Node, Binding], int]


def trips(graph: Graph, node: Node, loop: Loop, binding: Binding) -> Iterator[tuple[int, dict[str, int]]]:
    """How often the body runs under which sizes: the full parts, and the last one where it is shorter.

    A dim of the body that names the length of a part (the extent of a sliced input along the sliced axis) is
    bound to that length; all others are those of the graph around it.
    """
    count = loop.trip_count.evaluate(binding)
    full, last = dict(binding), dict(binding)
    for part in loop.slices:
        extent = loop.body.values[loop.body.inputs[part.input]].shape[part.axis]
        if str(extent) in extent.dims():
            step = part.step.evaluate(binding)
            length = graph.values[node.inputs[part.input]].shape[part.axis].evaluate(binding)
            full[str(extent)] = min(step, length)
            last[str(extent)] = length - (count - 1) * step
    if full == last:
        yield count, full
        return
    if count > 1:
        yield count - 1, full
    yield 1, last


def loop_seconds(graph: Graph, node: Node, binding: Binding, inner: NodeSeconds) -> float:
    """Seconds of all trips, one after another; `inner` says what a node of the body takes."""
    total = 0.0
    for loop in node.regions:
        for count, sizes in trips(graph, node, loop, binding):
            total += count * sum(inner(loop.body, part, sizes) for part in loop.body.nodes)
    return total


def loop_workspace_bytes(graph: Graph, node: Node, binding: Binding, inner: NodeBytes) -> int:
    """Most bytes that a trip holds beyond what it is handed; `inner` gives the workspace of a node of the body."""
    most = 0
    for loop in node.regions:
        for _, sizes in trips(graph, node, loop, binding):
            scratch = {part.id: inner(loop.body, part, sizes) for part in loop.body.nodes}
            order = Schedule.program_order(loop.body)
            body = memory_profile(loop.body, order, binding=sizes, workspace=scratch)
            most = max(most, body.peak_with_workspace_bytes - body.resident_bytes)
    return most

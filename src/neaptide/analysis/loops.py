"""Loops: how often a body runs, under which sizes and in which order. The one reading that every room shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import own_length, part_dim
from neaptide.ir.nodes import ADD_OP, Loop, Node
from neaptide.ir.schedule import Schedule

Binding = Mapping[str, int]

Bodies = Mapping[int, Schedule]
"""By node with a loop, the order of one trip; program order for a loop that is not in it."""

NO_BODIES: Bodies = MappingProxyType({})


def body_schedule(node: Node, bodies: Bodies = NO_BODIES) -> Schedule:
    """The order in which one trip of a node's loop runs, with the orders of the loops inside it."""
    given = bodies.get(node.id)
    return Schedule.program_order(node.regions[0].body) if given is None else given


def trips(
    graph: Graph, node: Node, loop: Loop, binding: Binding | None = None
) -> Iterator[tuple[int, dict[str, int]]]:
    """Numbers of trips and the sizes of the body in them: the full parts, and the last one where it is shorter.

    A dim of the body that follows from the length of a part (see `ir.loop_maps.part_dim`) is bound by it; all others
    are those of the graph around it. O(slices).

    Raises:
        SymbolicError: a dim of the graph around the loop has no value.
    """
    around = binding or {}
    count = loop.trip_count.evaluate(around)
    full, last = dict(around), dict(around)
    for part in loop.slices:
        extent = loop.body.values[loop.body.inputs[part.input]].shape[part.axis]
        told = part_dim(extent, frozenset(around))
        if told is None:
            continue
        step = part.step.evaluate(around)
        length = own_length(part, graph.values[node.inputs[part.input]]).evaluate(around)
        scale, rest = told.scale.evaluate(around), told.rest.evaluate(around)
        full[told.dim] = (min(step, length) + part.halo - rest) // scale
        last[told.dim] = (length - (count - 1) * step + part.halo - rest) // scale
    if full == last:
        yield count, full
        return
    if count > 1:
        yield count - 1, full
    yield 1, last


def first_trip_writes(loop: Loop) -> frozenset[int]:
    """Destinations of sums that nothing in the body touches but one addition, so that the first trip may overwrite."""
    destinations = set(loop.destinations())
    touching: dict[int, list[Node]] = {number: [] for number in destinations}
    for inner in loop.body.nodes:
        for number in destinations.intersection(inner.inputs):
            touching[number].append(inner)
    return frozenset(
        number
        for merge, number in zip(loop.merges, loop.destinations(), strict=True)
        if merge.how == "sum" and len(touching[number]) == 1 and _only_adds_to(touching[number][0], number)
    )


def _only_adds_to(node: Node, value: int) -> bool:
    return node.op == ADD_OP and node.inputs[0] == value and value not in node.inputs[1:]

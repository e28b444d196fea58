"""Loops: how often a body runs, under which sizes and in which order. The one reading that every room shares."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from neaptide.ir.loop_maps import Binding, trips
from neaptide.ir.nodes import ADD_OP, Loop, Node
from neaptide.ir.schedule import Schedule

__all__ = [
    "NO_BODIES",
    "NO_SCRATCH",
    "Binding",
    "Bodies",
    "Path",
    "Scratch",
    "body_schedule",
    "first_trip_writes",
    "in_body",
    "trips",
]

Bodies = Mapping[int, Schedule]
"""By node with a loop, the order of one trip; program order for a loop that is not in it."""

NO_BODIES: Bodies = MappingProxyType({})

Path = tuple[int, ...]
"""Where a node is in the bodies of loops: ids of the loops around it, outermost first, then its own."""

Scratch = Mapping[Path, int]
"""Workspace bytes of nodes in the bodies of loops, of any trip the most; loops have none of their own."""

NO_SCRATCH: Scratch = MappingProxyType({})


def in_body(scratch: Scratch, node: int) -> dict[Path, int]:
    """What is known of the nodes in the body of a loop, by their paths from there."""
    return {path[1:]: nbytes for path, nbytes in scratch.items() if path[0] == node}


def body_schedule(node: Node, bodies: Bodies = NO_BODIES) -> Schedule:
    """The order in which one trip of a node's loop runs, with the orders of the loops inside it."""
    given = bodies.get(node.id)
    return Schedule.program_order(node.regions[0].body) if given is None else given


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

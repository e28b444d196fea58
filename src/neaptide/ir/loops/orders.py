"""Orders of the bodies of loops as plain data, and as the schedules that they stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Offload, Schedule


@dataclass(frozen=True, slots=True)
class BodyOrder:
    """The order of one trip of a loop.

    Attributes:
        loops: ids of nodes with a loop: the one in the graph, the one in its body, and so on, to the loop itself.
        sequence: node ids of the body in running order; a repeated id is a recomputation in each trip.
        stays: storages that wait on the host in each trip, by positions in `sequence`, in the order in which they leave.
    """

    loops: tuple[int, ...]
    sequence: tuple[int, ...]
    offloads: tuple[Offload, ...] = ()


def body_orders(bodies: Mapping[int, Schedule]) -> tuple[BodyOrder, ...]:
    """The orders of bodies and of bodies inside them, ascending by `loops`. O(length)."""
    return tuple(sorted(_found((), bodies), key=lambda order: order.loops))


def body_schedules(graph: Graph, orders: Sequence[BodyOrder]) -> dict[int, Schedule]:
    """The schedules of bodies that some orders stand for, by loop. Whether they are legal is not asked. O(length).

    Args:
        orders: ascending by `loops`; a body without one runs in program order.

    Raises:
        VerifyError: a loop that is none, one named twice or out of order, a node that its body has not, or an offload at
            positions that its sequence has not.
    """
    given = {order.loops: order for order in orders}
    told = [order.loops for order in orders]
    if told != sorted(given):
        raise VerifyError("its loops are not ascending, or one is there twice")
    for loops in told:
        _check_path(graph, loops)
    return _schedules(graph, (), given)


def _found(path: tuple[int, ...], bodies: Mapping[int, Schedule]) -> Iterator[BodyOrder]:
    for loop, schedule in bodies.items():
        here = (*path, loop)
        yield BodyOrder(here, tuple(step.target for step in schedule.node_steps()), schedule.offloads())
        yield from _found(here, schedule.bodies)


def _check_path(graph: Graph, loops: Sequence[int]) -> None:
    inside = graph
    for node in loops:
        if not 0 <= node < len(inside.nodes) or not inside.nodes[node].regions:
            raise VerifyError(f"{_named(loops)} is no loop")
        inside = inside.nodes[node].regions[0].body
    if not loops:
        raise VerifyError("one names no loop")


def _schedules(
    graph: Graph, path: tuple[int, ...], given: Mapping[tuple[int, ...], BodyOrder]
) -> dict[int, Schedule]:
    depth = len(path)
    made = {}
    for loop in sorted({loops[depth] for loops in given if loops[:depth] == path and len(loops) > depth}):
        body, here = graph.nodes[loop].regions[0].body, (*path, loop)
        order = given.get(here, BodyOrder(here, tuple(range(len(body.nodes)))))
        sequence = order.sequence
        if unknown := [node for node in sequence if not 0 <= node < len(body.nodes)]:
            raise VerifyError(f"{_named(here)} has no node {unknown[0]} in its body of {len(body.nodes)}")
        inside = _schedules(body, here, given)
        made[loop] = Schedule.from_nodes(body, sequence, inside).with_offloads(order.offloads)
    return made


def _named(loops: Sequence[int]) -> str:
    return f"node {' in the body of node '.join(map(str, reversed(loops)))}"

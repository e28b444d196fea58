"""When the bodies of loops move storages: their trips as a cost model prices them."""

from __future__ import annotations

from neaptide.analysis.loops import Binding, Bodies, body_schedule, trips
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.cost.model import CostModel
from neaptide.errors import UsageError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule, StepKind
from neaptide.schedule.copy_streams import Event, LoopCopies, Trip
from neaptide.schedule.timeline import Links


def moves_storages(node: Node, bodies: Bodies) -> bool:
    """Whether the body of a loop, or one inside it, takes storages to the host."""
    return node.id in bodies and bodies[node.id].has_transfers


def body_copies(
    graph: Graph, node: Node, cost: CostModel, bodies: Bodies, binding: Binding, links: Links | None
) -> LoopCopies:
    """The trips of a loop, priced. O(steps of the full and of the last trip, loops inside included)."""
    if links is None:
        raise UsageError(
            "the body of a loop stores something on the host, and what copies take is not known",
            next_step="take a device with links, or plan without room on the host",
        )
    loop, order = node.regions[0], body_schedule(node, bodies)
    calls = 1 + len(loop.slices) + sum(merge.how == "concat" for merge in loop.merges)
    return LoopCopies(
        tuple(
            (count, _trip(loop.body, order, cost.under(sizes), calls * cost.call_s, sizes, links))
            for count, sizes in trips(graph, node, loop, binding)
        )
    )


def _trip(
    body: Graph, order: Schedule, cost: CostModel, called_s: float, sizes: Binding, links: Links
) -> Trip:
    nbytes = evaluate_storage_bytes(body, sizes)
    link_of = {StepKind.STORE: links.out, StepKind.LOAD: links.back}
    seconds, waited_s = called_s, 0.0
    events: list[Event] = []
    for step in order.steps:
        key = step.target, step.occurrence
        if step.moves_bytes:
            copy_s = link_of[step.kind].seconds(nbytes[step.target]) if step.kind in link_of else 0.0
            events.append((seconds, step.kind, key, copy_s))
        elif step.runs_node and moves_storages(part := body.nodes[step.target], order.bodies):
            inside = body_copies(body, part, cost, order.bodies, sizes, links)
            events.append((seconds, step.kind, key, inside))
            seconds += inside.alone.seconds
            waited_s += inside.alone.waited_s
        elif step.runs_node:
            seconds += cost.seconds(body, body.nodes[step.target], order.bodies)
    return Trip(seconds, waited_s, tuple(events))

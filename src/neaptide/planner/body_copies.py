"""When the bodies of loops move storages: their trips as a cost model prices them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from neaptide.analysis.loops import Binding, Bodies, body_schedule, trips
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.cost.devices import Device, Link
from neaptide.cost.model import CostModel
from neaptide.errors import UsageError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule, StepKind
from neaptide.schedule.loop_copies import Copying, LoopCopies, Running, TripStep
from neaptide.schedule.timeline import copy_links_if_any


class Links(NamedTuple):
    """Copy engines."""

    out: Link
    back: Link

    @staticmethod
    def of(device: Device) -> Links | None:
        """Those of a device to where storages wait, and back; None where it has none."""
        found = copy_links_if_any(device)
        return None if found is None else Links(*found)


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
            (
                count,
                (
                    Running(calls * cost.call_s),
                    *_steps(loop.body, order, cost.under(sizes), sizes, links),
                ),
            )
            for count, sizes in trips(graph, node, loop, binding)
        )
    )


def _steps(body: Graph, order: Schedule, cost: CostModel, sizes: Binding, links: Links) -> Iterator[TripStep]:
    nbytes = evaluate_storage_bytes(body, sizes)
    link_of = {StepKind.STORE: links.out, StepKind.LOAD: links.back}
    for step in order.steps:
        if step.runs_node:
            part = body.nodes[step.target]
            if moves_storages(part, order.bodies):
                yield body_copies(body, part, cost, order.bodies, sizes, links)
            else:
                yield Running(cost.seconds(body, part, order.bodies))
        elif step.moves_bytes:
            seconds = link_of[step.kind].seconds(nbytes[step.target]) if step.kind in link_of else 0.0
            yield Copying(step.kind, (step.target, step.occurrence), seconds)

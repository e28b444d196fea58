"""A carried out state ordered anew: the graph around what its moves changed, the bodies of its loops from end to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from neaptide.analysis.loops import Bodies
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.planner.pricing import Pricing
from neaptide.schedule.evaluate import Evaluator
from neaptide_peers.magis.carry_out import CarriedOut
from neaptide_peers.magis.reordered import Reordering


def reordered_schedule(carried: CarriedOut, pricing: Pricing, reordering: Reordering) -> Schedule:
    """The schedule of a state without offloads, ordered anew; never with a higher peak, workspace included.

    What its moves changed are the nodes that they made or touched, those that run again, and those in front of which
    they do. The body of a loop is new as a whole.

    Args:
        carried: the state.
        pricing: of its graph.
        reordering: of sequences.

    Raises:
        SymbolicError: a dim has no value.
    """
    return _ordered(carried.graph, carried.schedule, pricing, reordering, carried.edited.touched)


def _ordered(
    graph: Graph, given: Schedule, pricing: Pricing, reordering: Reordering, touched: Iterable[int]
) -> Schedule:
    sequence = tuple(step.target for step in given.node_steps())
    changed = set(touched)
    runs = Counter(sequence)
    positions = {p for p, node in enumerate(sequence) if node in changed or runs[node] > 1}
    seen = set[int]()
    for position, node in enumerate(sequence[:-1]):
        if node in seen:
            positions.add(position + 1)
        seen.add(node)
    bodies = _bodies(graph, given, pricing, reordering)
    step = pricing.problem(graph, bodies)
    if bodies != given.bodies:
        before = pricing.problem(graph, given.bodies)
        if Evaluator(step, sequence).peak >= Evaluator(before, sequence).peak:
            bodies, step = given.bodies, before
    found = reordering.sequence(step, sequence, positions)
    if found == sequence and bodies == given.bodies:
        return given
    return Schedule.from_nodes(graph, found, bodies)


def _bodies(graph: Graph, given: Schedule, pricing: Pricing, reordering: Reordering) -> Bodies:
    """The orders of the bodies of loops, ordered anew; none where it is program order."""
    found = {}
    for node in graph.nodes:
        if not node.regions:
            continue
        body = node.regions[0].body
        order = given.bodies.get(node.id, Schedule.program_order(body))
        inside = pricing.within(graph, node)
        made = _ordered(body, order, inside, reordering, range(len(body.nodes)))
        if made != Schedule.program_order(body):
            found[node.id] = made
    return found

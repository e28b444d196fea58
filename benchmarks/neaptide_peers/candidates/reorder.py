"""The best order of a changed graph, from the order and the proof of the graph before."""

from __future__ import annotations

from neaptide.ir.edits.edited import Edited
from neaptide.outcome import Limits, Outcome
from neaptide.schedule.order.from_step import step_order_problem
from neaptide.schedule.order.portfolio import best_order
from neaptide_peers.candidates.change import Change
from neaptide_peers.candidates.standing import Standing
from neaptide_peers.incremental.edit import edit_of
from neaptide_peers.incremental.reschedule import Rescheduled, reschedule
from neaptide_peers.incremental.settling import Settled, settle


def settled_order(standing: Standing, limits: Limits) -> Settled:
    """The best order found of a graph, with what its proof can tell about changes of it.

    Args:
        standing: the graph and its prices; its sequence does not matter.
        limits: of the search, and again of the proof that survives changes.
    """
    problem = step_order_problem(standing.problem)
    found = best_order(problem, limits).require()
    return settle(problem, found.order, found.order_lower_bound_bytes, limits=limits)


def reorder_candidate(
    standing: Standing, before: Settled, edited: Edited, limits: Limits | None = None
) -> Outcome[Rescheduled]:
    """Order a changed graph again: each node once, from the best order of the graph before.

    What has been proved of that holds where the change does not reach; see `neaptide_peers.incremental.reschedule`. The
    answer is an order of the node ids of the changed graph. At least O(size of the graph).

    Args:
        standing: the graph before.
        before: its order, from `settled_order`.
        edited: the change.
        limits: of the search.
    """
    step = standing.pricing.problem(edited.graph, Change(standing, edited).bodies())
    return reschedule(before, edit_of(before.problem, step_order_problem(step), edited), limits=limits)

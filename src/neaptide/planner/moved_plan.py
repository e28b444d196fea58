"""What is known of a plan that was changed behind its search."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason
from neaptide.planner.graph_search import GraphSearch
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.portfolio import bounded_ending, ending_by_order_alone
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.curve.least_memory import LEAST_MEMORY
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.plans import TerminationRecord

_BEHIND: Final = "results were put on top of operands behind the search"


def moved_outcome(
    search: GraphSearch, outcome: Outcome[PlannedSequence], sequence: tuple[int, ...]
) -> Outcome[PlannedSequence]:
    """The outcome of a search whose plan has been moved, and what is known of it then.

    Args:
        search: what was asked.
        outcome: of it; it must have a value.
        sequence: what the value has become.
    """
    step, found = search.step, outcome.require()
    moved = PlannedSequence.evaluate(step, sequence, found.strategy)
    ending = _ending_of_peak if search.longest() is not None else _ending_of_time
    return replace(outcome, value=moved, termination=ending(search, outcome, moved))


def carried_over(
    search: GraphSearch, ended: TerminationRecord, found: PlannedSequence, *, has_stays: bool = False
) -> Outcome[PlannedSequence]:
    """The outcome of a search for a graph, given a sequence that a search found for one that takes more bytes.

    Args:
        search: of the graph; it need not run.
        ended: how the search for the other graph ended. Its bounds are not believed here.
        found: the sequence in the graph.
        has_stays: storages wait on the host in it: then no bound of recomputation is one of it.
    """
    step, peak = search.step, found.peak_with_workspace_bytes
    if search.longest() is not None and ended.reason == TerminationReason.INFEASIBLE:
        # What is proved is of the time, which is no less here.
        return Outcome(found, Termination(TerminationReason.INFEASIBLE, None, ended.detail, peak))
    is_cut = ended.reason == TerminationReason.INTERRUPTED
    unproved = TerminationReason.INTERRUPTED if is_cut else TerminationReason.FEASIBLE
    is_timed = not search.budget.is_none and search.longest() is None
    if is_timed and peak <= search.allowed and has_stays:
        least = step.baseline_seconds
        is_proved = found.seconds - least <= SETTINGS.proved * least
        reason, limit = (TerminationReason.OPTIMAL, None) if is_proved else (unproved, ended.limit)
        return Outcome(found, Termination(reason, limit, _BEHIND, found.seconds, min(least, found.seconds)))
    if is_timed and peak <= search.allowed:
        if len(found.sequence) == step.node_count:
            return Outcome(found, ending_by_order_alone(found))
        guard = LimitGuard(Limits(search.limits.time_s), search.interrupt)
        proved = recompute_bound(step, search.allowed, sequence=found.sequence, guard=guard)
        return Outcome(found, bounded_ending(step, found, proved, ended.limit, unproved))
    if is_timed:
        unproved = unproved if is_cut else TerminationReason.NO_SOLUTION_FOUND
    bound = step.order_lower_bound_bytes if search.budget.is_none else step.lower_bound_bytes
    if peak <= bound:
        return Outcome(found, Termination(TerminationReason.OPTIMAL, None, _BEHIND, peak, bound))
    if is_timed and search.allowed < bound:
        unproved = TerminationReason.INFEASIBLE
    return Outcome(found, Termination(unproved, ended.limit, _BEHIND, peak, bound))


def _ending_of_peak(_: GraphSearch, outcome: Outcome[PlannedSequence], moved: PlannedSequence) -> Termination:
    """What is known of the peak: nothing where the order is another."""
    ended = outcome.termination
    if not _has_another_order(outcome.require(), moved):
        return replace(ended, best=moved.peak_with_workspace_bytes)
    reason = TerminationReason.FEASIBLE if ended.reason is TerminationReason.OPTIMAL else ended.reason
    is_whole = ended.reason is TerminationReason.INFEASIBLE or LEAST_MEMORY not in ended.detail
    detail = ended.detail if is_whole else LEAST_MEMORY
    return Termination(reason, ended.limit, detail, moved.peak_with_workspace_bytes)


def _ending_of_time(
    search: GraphSearch, outcome: Outcome[PlannedSequence], moved: PlannedSequence
) -> Termination:
    """What is known of the time: a bound is one of its own order."""
    step, ended, before = search.step, outcome.termination, outcome.require()
    is_timed = before.peak_with_workspace_bytes <= search.allowed and len(before.sequence) > step.node_count
    if ended.bound is None or not is_timed or not _has_another_order(before, moved):
        is_of_peak = ended.best == before.peak_with_workspace_bytes
        return replace(ended, best=moved.peak_with_workspace_bytes) if is_of_peak else ended
    guard = LimitGuard(Limits(search.limits.time_s), search.interrupt)
    proved = recompute_bound(step, search.allowed, sequence=moved.sequence, guard=guard)
    is_cut = ended.reason is TerminationReason.INTERRUPTED
    unproved = TerminationReason.INTERRUPTED if is_cut else TerminationReason.FEASIBLE
    return bounded_ending(step, moved, proved, ended.limit, unproved)


def _has_another_order(before: PlannedSequence, moved: PlannedSequence) -> bool:
    return tuple(dict.fromkeys(before.sequence)) != tuple(dict.fromkeys(moved.sequence))

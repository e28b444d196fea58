"""What is known of a plan that was moved for its layout after the search."""

from __future__ import annotations

from dataclasses import replace

from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason
from neaptide.planner.graph_search import GraphSearch
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.portfolio import bounded_ending
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.curve.least_memory import LEAST_MEMORY


def moved_outcome(
    search: GraphSearch, outcome: Outcome[PlannedSequence], sequence: tuple[int, ...]
) -> Outcome[PlannedSequence]:
    """The outcome of a search whose plan has been moved, and what is known of it then."""
    step, found = search.step, outcome.require()
    moved = PlannedSequence.evaluate(step, sequence, found.strategy)
    ending = _ending_of_peak if search.longest() is not None else _ending_of_time
    return replace(outcome, value=moved, termination=ending(search, outcome, moved))


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

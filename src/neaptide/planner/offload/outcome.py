"""Offload after a search for recomputations: the better plan, what is known of it, and when its copies run."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from neaptide.ir.schedule import Offload, Schedule, StepKind
from neaptide.outcome import Limits, Outcome, Termination, TerminationReason
from neaptide.planner.graphs.graph_search import GraphSearch
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.lowest_peak import Choose, lowest_peak
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.search import choose_offload
from neaptide.planner.recompute.curve.least_memory import LEAST_MEMORY, LOWEST_PEAK
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.plans import CopiesRecord, StayCopies, TimedCopy
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.timeline import simulate_timeline

_WITH_OFFLOAD: Final = ", with offloads"


def offload_after(
    search: GraphSearch,
    outcome: Outcome[PlannedSequence],
    host: HostSpace,
    limits: Limits,
    choose: Choose = choose_offload,
) -> Outcome[OffloadPlan]:
    """The better plan with offload; the plan of the search where none is better. Limits are of both together."""
    longest = search.longest()
    limits = replace(search.limits, time_s=limits.after(outcome.seconds).time_s)
    problem = OffloadProblem(search.searched, search.allowed, host, [outcome.require()], longest=longest)
    if longest is None:
        return choose(problem, limits, search.interrupt)
    return lowest_peak(problem, choose, limits, search.interrupt)


def before_offload(limits: Limits, host: HostSpace | None) -> Limits:
    """What a search for recomputations gets of some limits where a search for offload comes after it."""
    # Searches take all of their time where nothing is proved, and nothing would be left.
    if host is None or limits.time_s is None:
        return limits
    return replace(limits, time_s=0.5 * limits.time_s)


def with_offload(
    search: GraphSearch, outcome: Outcome[PlannedSequence], stored: Outcome[OffloadPlan], host: HostSpace
) -> Outcome[PlannedSequence]:
    """The outcome of a search whose plan was improved by offload: its bounds are of recomputation alone, and do not hold."""
    found, ended, step = stored.require().planned, outcome.termination, search.searched
    is_cut = ended.reason is TerminationReason.INTERRUPTED
    if search.longest() is not None:
        last = stored.termination
        what = LOWEST_PEAK if search.longest() == math.inf else LEAST_MEMORY
        reason = TerminationReason.INTERRUPTED if is_cut else last.reason
        return replace(
            outcome, value=found, termination=replace(last, reason=reason, detail=what + _WITH_OFFLOAD)
        )
    if found.peak_with_workspace_bytes > search.allowed:
        reason = TerminationReason.INTERRUPTED if is_cut else TerminationReason.NO_SOLUTION_FOUND
        detail = LOWEST_PEAK + _WITH_OFFLOAD
        peak, bound = found.peak_with_workspace_bytes, host.least_bytes(step)
        return replace(
            outcome, value=found, termination=Termination(reason, ended.limit, detail, peak, bound)
        )
    detail = stored.termination.detail
    bound_s = stored.termination.bound or step.baseline_seconds
    if found.seconds - bound_s <= SETTINGS.proved * step.baseline_seconds:
        ending = Termination(TerminationReason.OPTIMAL, None, detail, found.seconds, bound_s)
    else:
        reason = TerminationReason.INTERRUPTED if is_cut else TerminationReason.FEASIBLE
        ending = Termination(reason, ended.limit, detail, found.seconds, bound_s)
    return replace(outcome, value=found, termination=ending)


def copies_record(
    step: StepProblem, schedule: Schedule, offloads: Iterable[Offload], host: HostSpace
) -> CopiesRecord:
    """The copies of a schedule beside its operations, as the timeline plays them. O(steps).

    Args:
        stays: of the schedule by position, in the order in which they are stored.
    """
    played = simulate_timeline(step, schedule, host.out, host.back)
    # An instance makes its trips one after the other.
    copies: dict[tuple[int, int, StepKind], deque[TimedCopy]] = defaultdict(deque)
    for copy in played.copies:
        timed = TimedCopy(copy.issued_s, copy.start_s, copy.end_s)
        copies[*copy.key, copy.kind].append(timed)
    rows = tuple(
        StayCopies(
            step.storage_names[offload.storage],
            step.moved_bytes(offload.storage),
            None
            if offload.begins_before
            else copies[offload.storage, offload.occurrence, StepKind.STORE].popleft(),
            None
            if offload.ends_after
            else copies[offload.storage, offload.occurrence, StepKind.LOAD].popleft(),
        )
        for offload in offloads
    )
    waits = tuple((wait.begin_s, wait.begin_s + wait.seconds) for wait in played.waits)
    return CopiesRecord(rows, waits)

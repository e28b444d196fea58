"""What is known of a plan with stays on the host."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from neaptide.outcome import Outcome, Termination, TerminationReason
from neaptide.planner.graph_search import GraphSearch
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.recompute.curve.least_memory import LEAST_MEMORY, LOWEST_PEAK
from neaptide.planner.recompute.settings import SETTINGS

_WITH_STAYS: Final = ", with stays on the host"


def with_stays(
    search: GraphSearch, outcome: Outcome[PlannedSequence], stored: Outcome[OffloadPlan], host: HostSpace
) -> Outcome[PlannedSequence]:
    """The outcome of a search whose plan was improved by stays: its bounds are of recomputation alone, and do not hold.

    Args:
        search: what was asked.
        outcome: of it, without stays.
        stored: of the search for the better plan.
        host: that it was for.
    """
    found, ended, step = stored.require().planned, outcome.termination, search.searched
    is_cut = ended.reason is TerminationReason.INTERRUPTED
    if search.longest() is not None:
        last = stored.termination
        what = LOWEST_PEAK if search.longest() == math.inf else LEAST_MEMORY
        reason = TerminationReason.INTERRUPTED if is_cut else last.reason
        return replace(
            outcome, value=found, termination=replace(last, reason=reason, detail=what + _WITH_STAYS)
        )
    if found.peak_with_workspace_bytes > search.allowed:
        reason = TerminationReason.INTERRUPTED if is_cut else TerminationReason.NO_SOLUTION_FOUND
        detail = LOWEST_PEAK + _WITH_STAYS
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

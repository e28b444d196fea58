"""Stays on the host chosen behind a search for recomputations."""

from __future__ import annotations

from dataclasses import replace

from neaptide.outcome import Limits, Outcome
from neaptide.planner.graph_search import GraphSearch
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.lowest_peak import ChooseStays, lowest_peak
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.search import choose_stays


def stays_behind(
    search: GraphSearch,
    outcome: Outcome[PlannedSequence],
    host: HostSpace,
    limits: Limits,
    choose: ChooseStays = choose_stays,
) -> Outcome[OffloadPlan]:
    """The better plan with stays on the host; the plan of the search where none is better.

    Args:
        search: what was asked.
        outcome: of it, without stays.
        host: room there, and links.
        limits: of the search and of this choice together.
        choose: finds a fast plan within a budget.
    """
    longest = search.longest()
    left = None if limits.time_s is None else max(limits.time_s - outcome.seconds, 0.0)
    limits = replace(search.limits, time_s=left)
    problem = OffloadProblem(search.searched, search.allowed, host, [outcome.require()], longest=longest)
    if longest is None:
        return choose(problem, limits, search.interrupt)
    return lowest_peak(problem, choose, limits, search.interrupt)


def before_stays(limits: Limits, host: HostSpace | None) -> Limits:
    """What a search for recomputations gets of some limits. Half of the time is left where stays are looked for behind it."""
    # Searches take all of their time where nothing is proved, and nothing would be left for stays.
    if host is None or limits.time_s is None:
        return limits
    return replace(limits, time_s=0.5 * limits.time_s)

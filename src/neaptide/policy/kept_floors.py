"""Plans whose peak an error named as the lowest: whoever asks for that many bytes in this process gets them.

A search that is cut short by its limit of time may find less the next time. What was named as reachable stays so: the plan is
kept as the entry of a plan file, by the program and by what was asked, and is checked anew before it is given back.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from typing import Final

from neaptide.ask import Ask
from neaptide.errors import PlanError
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.registry import OpRegistry
from neaptide.outcome import Termination, TerminationReason
from neaptide.planner.check_plan import problem_of
from neaptide.plans import PlannedProgram
from neaptide.policy.plan_facts import checked_graph, replayed_graph
from neaptide.runtime.steps.planned_graph import PlannedGraph

logger = logging.getLogger(__name__)

_MOST_KEPT: Final = 64
_KEPT: Final = "the lowest peak that was found before for this program"


FLOORS: Final[OrderedDict[Hashable, PlannedProgram]] = OrderedDict()
"""Of this process: by question, the plan with the lowest peak among those above their budget; the latest are kept."""


def kept_floor(
    captured: CapturedProgram,
    found: PlannedProgram,
    device: str,
    ask: Ask,
    allowed: int,
    registry: OpRegistry,
) -> tuple[PlannedProgram, PlannedGraph] | None:
    """A plan that was kept and is within a budget that what was found is above, and what then runs; else None.

    What was found is kept unless a lower one is. A plan that does not stand before the checker is not given back. O(size).
    """
    budget = ask.budget
    question = (
        *(fingerprint(captured.graph), found.role, device, ask.strategy, ask.numerics),
        *(ask.rewrites, ask.atomic, ask.in_place),
        *(budget.host, budget.state_between_steps, ask.limits.seed, registry.bits_may_vary),
    )
    kept = FLOORS.pop(question, found)
    FLOORS[question] = min(kept, found, key=_peak)
    if len(FLOORS) > _MOST_KEPT:
        FLOORS.popitem(last=False)
    if _peak(kept) > allowed:
        return None
    ended = Termination(TerminationReason.FEASIBLE, None, _KEPT, kept.predictions.seconds)
    entry = replace(kept, budget_bytes=allowed, termination=ended)
    try:
        planned = replayed_graph(entry, captured, registry)
        step = problem_of(entry, planned.graph, registry)
        return entry, checked_graph(entry, planned, step, registry, atomic=ask.atomic)
    except PlanError as error:
        logger.warning("a plan that was found before is not legal any more: %s", error.what)
        return None


def _peak(program: PlannedProgram) -> int:
    return program.predictions.peak_with_workspace_bytes

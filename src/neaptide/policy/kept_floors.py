"""Plans whose peak an error named as the lowest: whoever asks for that many bytes in this process gets them.

A search that is cut short by its limit of time may find less the next time. What was named as reachable stays so: the plan is
kept as the entry of a plan file, by the program and by what was asked, and is judged anew before it is given back.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final

from neaptide.ask import Ask
from neaptide.errors import PlanError
from neaptide.frontends.programs.captured import CapturedProgram
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.registry import OpRegistry
from neaptide.outcome import TerminationReason
from neaptide.planner.judge_plan import problem_of
from neaptide.plans import PlannedProgram, TerminationRecord
from neaptide.policy.plan_facts import judged_graph, replayed_graph
from neaptide.runtime.steps.planned_graph import PlannedGraph

logger = logging.getLogger(__name__)

_MOST_KEPT: Final = 64
_KEPT: Final = "the lowest peak that was found before for this program"


@dataclass
class KeptFloors:
    """The plan with the lowest peak of each program that was above its budget; the latest are kept."""

    most: int = _MOST_KEPT
    _plans: OrderedDict[Hashable, PlannedProgram] = field(default_factory=OrderedDict, repr=False)

    def note(self, asked: Hashable, program: PlannedProgram) -> None:
        """Keep a plan that is above its budget, unless a lower one is kept for the same question."""
        known = self._plans.pop(asked, program)
        self._plans[asked] = min(known, program, key=_peak)
        if len(self._plans) > self.most:
            self._plans.popitem(last=False)

    def within(self, asked: Hashable, budget_bytes: int) -> PlannedProgram | None:
        """The plan that is kept for a question, where it is within a budget."""
        known = self._plans.get(asked)
        return known if known is not None and _peak(known) <= budget_bytes else None

    def clear(self) -> None:
        """Forget them all."""
        self._plans.clear()


FLOORS: Final = KeptFloors()
"""Those of this process."""


def question(program: CapturedProgram, role: str, device: str, ask: Ask, registry: OpRegistry) -> Hashable:
    """What a plan answers, but for the bytes and the limits of its search. O(size of the program)."""
    budget = ask.budget
    return (
        *(fingerprint(program.graph), role, device, ask.strategy, ask.numerics),
        *(ask.rewrites, ask.atomic, ask.in_place),
        *(budget.host, budget.state_between_steps, ask.limits.seed, registry.bits_may_vary),
    )


def given_back(
    program: CapturedProgram,
    kept: PlannedProgram,
    budget_bytes: int,
    registry: OpRegistry,
    *,
    atomic: bool,
) -> tuple[PlannedProgram, PlannedGraph] | None:
    """A plan that was kept, for a budget that it is within, and what then runs; None where it does not stand before the judge."""
    ended = TerminationRecord(str(TerminationReason.FEASIBLE), None, _KEPT, kept.predictions.seconds)
    entry = replace(kept, budget_bytes=budget_bytes, termination=ended)
    try:
        planned = replayed_graph(entry, program, registry)
        step = problem_of(entry, planned.graph, registry)
        return entry, judged_graph(entry, planned, step, registry, atomic=atomic)
    except PlanError as error:
        logger.warning("a plan that was found before is not legal any more: %s", error.what)
        return None


def _peak(program: PlannedProgram) -> int:
    return program.predictions.peak_with_workspace_bytes

"""Plans that searches for several limits of one program met: each counts for all limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.outcome import TerminationReason
from neaptide.planner.loop_bodies import planned_sequence
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.plan_graph import GraphPlan
from neaptide.planner.variants.estimate import Estimate
from neaptide.planner.variants.goal import Goal
from neaptide.planner.variants.variant import Division, Variant
from neaptide.planner.variants.variant_plan import VariantPlan
from neaptide.plans import PlannedProgram, TerminationRecord
from neaptide.transform.rewrite import Rewrite

_ELSEWHERE: Final = "met in a search for another limit"


@dataclass(frozen=True, slots=True)
class PricedVariant:
    """What a choice in a number of parts comes to before it is planned.

    Attributes:
        estimate: that was made of it; it keeps its choice.
        begins: what a further choice would follow from.
        variant: that with what is done last.
        written: the variant in program order.
    """

    estimate: Estimate
    begins: Variant
    variant: Variant
    written: PlannedSequence


@dataclass(frozen=True, slots=True)
class MetVariant:
    """A variant that was met.

    Attributes:
        label: what was done, in words.
        variant: what is planned and run.
        begins: what a further choice would follow from; None where none does.
        plans: sequences of it, the fastest first. Program order is among them where it is faster than its plans: it says what a
            shorter limit may be kept with.
    """

    label: str
    variant: Variant
    begins: Variant | None
    plans: tuple[PlannedSequence, ...]


class MetPlans:
    """Plans of variants of one program, in the order in which they were met."""

    def __init__(self) -> None:
        self._plans: list[VariantPlan] = []
        self._priced: dict[tuple[int, int], PricedVariant] = {}
        self._written: dict[tuple[Rewrite, ...], PlannedSequence] = {}

    def remember(self, priced: PricedVariant) -> None:
        """Remember what a choice in a number of parts comes to."""
        self._priced[_key(priced.estimate)] = priced
        self._written[priced.variant.rewrites] = priced.written

    def priced(self, estimate: Estimate) -> PricedVariant | None:
        """What the choice of an estimate, in its number of parts, comes to; None where nobody looked."""
        return self._priced.get(_key(estimate))

    def note(self, plan: VariantPlan, written: Callable[[Variant], PlannedSequence]) -> None:
        """Remember a plan.

        Args:
            plan: of a variant.
            written: tells what a variant comes to in program order; not asked where that is known.
        """
        self._plans.append(plan)
        rewrites = plan.variant.rewrites
        if rewrites not in self._written:
            self._written[rewrites] = written(plan.variant)

    def all_priced(self) -> tuple[PricedVariant, ...]:
        """All choices in numbers of parts that somebody looked at."""
        return tuple(self._priced.values())

    def best(self, goal: Goal) -> VariantPlan | None:
        """The best for a limit, as the answer to it; None where no plan was met. O(plans)."""
        return _best(self._plans, goal)

    def best_of(self, division: Division, goal: Goal) -> VariantPlan | None:
        """The best for a limit among those that are divided so; None where none was met. O(plans x nodes)."""
        return _best([plan for plan in self._plans if plan.variant.division is division], goal)

    def of(self, variant: Variant) -> tuple[GraphPlan, ...]:
        """Plans of a variant, none both lower and faster than another, the fastest first. O(plans log plans)."""
        found = [plan.found for plan in self._plans if plan.variant.rewrites == variant.rewrites]
        kept: list[GraphPlan] = []
        for plan in sorted(found, key=lambda one: _time_and_peak(one.program)):
            if not kept or _time_and_peak(plan.program)[1] < _time_and_peak(kept[-1].program)[1]:
                kept.append(plan)
        return tuple(kept)

    def variants(self) -> tuple[MetVariant, ...]:
        """Each variant that was planned or priced once, in the order in which they were. O(plans^2)."""
        met: dict[tuple[Rewrite, ...], MetVariant] = {}
        for plan in self._plans:
            rewrites = plan.variant.rewrites
            if rewrites not in met:
                plans = tuple(map(planned_sequence, self.of(plan.variant)))
                if (written := self._written[rewrites]).seconds < plans[0].seconds:
                    plans = (written, *plans)
                met[rewrites] = MetVariant(plan.label, plan.variant, plan.begins, plans)
        for one in self._priced.values():
            known = MetVariant(one.variant.label, one.variant, one.begins, (one.written,))
            met.setdefault(one.variant.rewrites, known)
        return tuple(met.values())


def _best(plans: Sequence[VariantPlan], goal: Goal) -> VariantPlan | None:
    best = min(plans, key=lambda plan: goal.rank_of(plan.found.program), default=None)
    if best is None:
        return None
    return replace(best, found=replace(best.found, program=for_limit(best.found.program, goal)))


def for_limit(program: PlannedProgram, goal: Goal) -> PlannedProgram:
    """A plan that a search for one limit found, as what is known of it for another.

    Bounds of that search hold for its own limit, and are dropped.
    """
    made, ended = program.predictions, program.termination
    beyond, *_ = goal.rank_of(program)
    reason = TerminationReason.NO_SOLUTION_FOUND if beyond else TerminationReason.FEASIBLE
    is_timed = goal.longest is None and not beyond
    best = made.seconds if is_timed else made.peak_with_workspace_bytes
    return replace(program, termination=TerminationRecord(str(reason), ended.limit, _ELSEWHERE, best))


def _key(estimate: Estimate) -> tuple[int, int]:
    return id(estimate.choice), estimate.parts


def _time_and_peak(program: PlannedProgram) -> tuple[float, int]:
    return program.predictions.seconds, program.predictions.peak_with_workspace_bytes

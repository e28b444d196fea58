"""Plans that searches for several limits of one program met: each counts for all limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.outcome import Termination, TerminationReason
from neaptide.planner.bodies.plans import planned_sequence
from neaptide.planner.graphs.plan_graph import GraphPlan
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.variants.choices import Choice
from neaptide.planner.variants.estimate import Estimate
from neaptide.planner.variants.price import Goal
from neaptide.planner.variants.variant import Division, Variant
from neaptide.plans import PlannedProgram, TriedVariant
from neaptide.transform.rewrite import Rewrite

_ELSEWHERE: Final = "met in a search for another limit"


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """The plan that was found, and what was done to the graph before.

    Attributes:
        variant: what was done; nothing where the graph as it is was best.
        begun: what the search went out from; None where the graph as it is was all that is needed.
        choices: what may follow from that.
        begins: what a further choice would follow from: `variant` without what is done last; None where there is none.
    """

    label: str
    found: GraphPlan
    variant: Variant
    before: PlannedSequence
    tried: tuple[TriedVariant, ...] = ()
    begun: Variant | None = None
    choices: tuple[Choice, ...] = ()
    begins: Variant | None = None


@dataclass(frozen=True, slots=True)
class PricedVariant:
    """A variant and what it comes to, before it is planned for the limit of a search.

    Attributes:
        variant: what is planned and run.
        begins: what a further choice would follow from: that without what is done last; None where none does.
        plans: sequences of it, the fastest first; program order alone where nobody planned it. It is among them where it is
            faster than the plans: it says what a shorter limit may be kept with.
        estimate: that was made of it, which keeps its choice; None where there is none.
        name: what was done, in words, where that is not what its decisions say.
    """

    variant: Variant
    begins: Variant | None
    plans: tuple[PlannedSequence, ...]
    estimate: Estimate | None = None
    name: str = ""

    @property
    def label(self) -> str:
        """What was done, in words."""
        return self.name or self.variant.label

    @property
    def choice(self) -> Choice | None:
        """The last one that was taken; None where none was, or that is not known."""
        return None if self.estimate is None else self.estimate.choice


class MetPlans:
    """Plans of variants of one program, in the order in which they were met."""

    def __init__(self) -> None:
        self._plans: list[VariantPlan] = []
        self._priced: dict[tuple[int, int], PricedVariant] = {}
        self._written: dict[tuple[Rewrite, ...], PlannedSequence] = {}

    def remember(self, priced: PricedVariant) -> None:
        """Remember what a choice in a number of parts comes to in program order."""
        assert priced.estimate is not None
        self._priced[_key(priced.estimate)] = priced
        self._written[priced.variant.rewrites] = priced.plans[0]

    def priced(self, estimate: Estimate) -> PricedVariant | None:
        """What the choice of an estimate, in its number of parts, comes to; None where nobody looked."""
        return self._priced.get(_key(estimate))

    def note(self, plan: VariantPlan, written: Callable[[Variant], PlannedSequence]) -> None:
        """Remember a plan; `written` tells what its variant comes to in program order, where that is not known."""
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

    def variants(self) -> tuple[PricedVariant, ...]:
        """Each variant that was planned or priced once, in the order in which they were. O(plans^2)."""
        met: dict[tuple[Rewrite, ...], PricedVariant] = {}
        for plan in self._plans:
            rewrites = plan.variant.rewrites
            if rewrites not in met:
                plans = tuple(map(planned_sequence, self.of(plan.variant)))
                if (written := self._written[rewrites]).seconds < plans[0].seconds:
                    plans = (written, *plans)
                met[rewrites] = PricedVariant(plan.variant, plan.begins, plans, None, plan.label)
        for one in self._priced.values():
            met.setdefault(one.variant.rewrites, one)
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
    return replace(program, termination=Termination(reason, ended.limit, _ELSEWHERE, best))


def _key(estimate: Estimate) -> tuple[int, int]:
    return id(estimate.choice), estimate.parts


def _time_and_peak(program: PlannedProgram) -> tuple[float, int]:
    return program.predictions.seconds, program.predictions.peak_with_workspace_bytes

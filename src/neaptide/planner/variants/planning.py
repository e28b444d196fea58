"""Plans of the variants of one graph for one limit: each by the inner search, under a share of the limits of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.outcome import LimitGuard, Stopwatch
from neaptide.planner.bodies.plans import BodyPlanner
from neaptide.planner.graphs.plan_graph import GraphAsk, GraphPlan, finished_plan
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.estimate import ON_A_CPU, PartCosts
from neaptide.planner.variants.merges import merged
from neaptide.planner.variants.met import MetPlans, PricedVariant, VariantPlan
from neaptide.planner.variants.price import Goal
from neaptide.planner.variants.processes.pool import Lost, PricedTask, WorkerPool
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.variant import Variant
from neaptide.plans import TriedVariant

AS_IT_IS: Final = "as it is"

LEAST_SHARE: Final = 0.04  # of the limits, for a layout and for a search that is worth beginning

PricingOf = Callable[[Graph], Pricing]
Request = Callable[[Edited], GraphAsk]
Floor = Callable[[GraphAsk], tuple[Variant, GraphPlan]]
"""The whole search that keeps the bits: told what is asked of the graph as it is, it gives what was planned, and its plan."""


@dataclass(frozen=True)
class VariantPrices:
    """What prices variants of a graph: `quick` any graph from what is known, `exact` one that is to be planned, for which
    operations may run; `costs` are of parts, to rank variants by before one was priced.
    """

    quick: Pricing
    exact: PricingOf
    costs: PartCosts = ON_A_CPU


class VariantPlanning:
    """Plans variants of a graph, and keeps all plans that are met. Arguments as of `plan_variants`."""

    def __init__(
        self,
        graph: Graph,
        asked: Request,
        prices: VariantPrices,
        choices: Choices,
        *,
        merging: bool,
        met: MetPlans,
    ) -> None:
        self.graph, self._asked, self.exact, self.choices = graph, asked, prices.exact, choices
        self.merging, self.met = merging, met
        self.plain = Variant.captured(graph)
        first = self.asked(self.plain.edited)
        self.interrupt, self.workers, self.limits = first.interrupt, first.workers, first.limits
        self._guard, self._spent = LimitGuard(self.limits, self.interrupt), 0.0
        step = self.exact(graph).problem(graph)
        self.before, self.persistent_bytes = baseline(step), step.persistent_bytes
        assert first.budget_bytes is not None
        self.goal = Goal.of(first.budget, first.budget_bytes, self.before.seconds)
        self.tried: list[TriedVariant] = []
        self.pool: WorkerPool | None = None
        self.floor_seconds, self._has_planned = 0.0, False

    @property
    def is_unlimited(self) -> bool:
        """Whether there is neither a limit of time nor one of work."""
        return self.limits.time_s is None and self.limits.work is None

    def asked(self, edited: Edited, share: float = 1.0) -> GraphAsk:
        """What is asked of a variant under a share of the limits: a draft, where plans are laid out and checked alone."""
        request = self._asked(edited)
        limits = request.limits if share == 1.0 else request.limits.part(share)
        return replace(request, is_draft=request.host is None and not request.atomic, limits=limits)

    def left(self) -> float:
        """The share of the limits that is left: of the time, or of the work where only that is limited."""
        time = self.time_left()
        is_of_work = self.limits.work is not None and self.limits.time_s is None
        return max(1.0 - self._spent, 0.0) if is_of_work and time else time

    def time_left(self) -> float:
        """The share of the time that is left; all of it where there is no limit."""
        if self._guard.check_now() is not None:
            return 0.0
        remaining = self._guard.remaining_s()
        return remaining / self.limits.time_s if self.limits.time_s and remaining is not None else 1.0

    def finish(self, best: VariantPlan) -> VariantPlan:
        """The answer, laid out and checked."""
        variant, share = best.variant, max(self.left(), LEAST_SHARE)
        asked = self.asked(variant.edited, share)
        return replace(best, found=finished_plan(variant.graph, self.exact(variant.graph), asked, best.found))

    def close(self) -> None:
        """End the workers."""
        if self.pool is not None:
            self.pool.close()

    def floor(self, search: Floor | None) -> VariantPlan:
        """The finished plan that keeps the bits: the answer where no variant is better.

        It has all of the work to itself, as each search has, and a part of the time.
        """
        watch, time_s = Stopwatch(), self.limits.time_s
        asked = self._within_goal(self.plain, self.asked(self.plain.edited))
        if time_s is not None:
            asked = replace(asked, limits=replace(asked.limits, time_s=SETTINGS.floor_share * time_s))
        if search is None:
            planner = BodyPlanner(self.exact(self.graph), asked.limits, asked.interrupt)
            variant, found = self.plain, planner.around(self.graph, asked)
        else:
            variant, found = search(asked)
        self.floor_seconds = watch.seconds()
        return self._noted(VariantPlan(AS_IT_IS, found, variant, self.before))

    def finished(self, variant: Variant, *, keeps_operands: bool = False) -> Variant:
        """A variant with what costs nothing, as it is planned and run; `keeps_operands` as in `merged`."""
        return merged(variant, self.choices, keeps_operands=keeps_operands) if self.merging else variant

    def priced(self, begins: Variant, *, keeps_operands: bool = False) -> PricedVariant:
        """What a variant comes to before it is planned."""
        variant = self.finished(begins, keeps_operands=keeps_operands)
        return PricedVariant(variant, begins, (self.in_program_order(variant),))

    def in_program_order(self, variant: Variant) -> PlannedSequence:
        """What a variant comes to without a plan."""
        return baseline(self.exact(variant.graph).problem(variant.graph))

    def planned(self, one: PricedVariant, share: float, label: str = "") -> VariantPlan:
        """The plan of one variant; `share` of the limits is for each of its searches."""
        self.spend(share, one.variant)
        return self._noted(self._plan_of(one, self._plan(one.variant, share), label))

    def spend(self, share: float, variant: Variant) -> None:
        """Take note of the searches that a variant takes, each of which gets a share of the work."""
        self._spent += share * searches_of(variant)

    def side_by_side(self, picked: Sequence[PricedVariant]) -> list[VariantPlan | None]:
        """Plans of some variants, by variant; None for those that no time was left for. Their shares are spent before."""

        def may_begin(number: int) -> bool:
            is_first = not self._has_planned and number == 0
            return is_first or self.time_left() > SETTINGS.reserve

        made: list[GraphPlan | Lost | None] = [Lost() for _ in picked]
        if self.pool is not None:
            tasks = [
                PricedTask.of(
                    one.variant.graph,
                    self._within(one.variant, share_of(one.variant)),
                    self.exact(one.variant.graph),
                )
                for one in picked
            ]
            made = self.pool.plans(tasks, may_begin)
        found = []
        for number, (one, there) in enumerate(zip(picked, made, strict=True)):
            plan = None if isinstance(there, Lost) else there
            if isinstance(there, Lost) and may_begin(number):
                plan = self._plan(one.variant, share_of(one.variant))
            found.append(None if plan is None else self._noted(self._plan_of(one, plan)))
        self._has_planned = True
        return found

    def is_better(self, plan: VariantPlan, than: VariantPlan) -> bool:
        """Whether a plan is closer to what is asked for."""
        return self.rank(plan) < self.rank(than)

    def rank(self, plan: VariantPlan) -> tuple[float, ...]:
        """Lower is better."""
        return self.goal.rank_of(plan.found.program)

    def is_free(self, plain: VariantPlan) -> bool:
        """Whether the graph as it is keeps to its budget at no more time than it takes anyway."""
        made = plain.found.program.predictions
        fits = made.peak_with_workspace_bytes <= self.goal.allowed
        return self.goal.longest is None and fits and made.seconds <= self.before.seconds

    def _plan_of(self, one: PricedVariant, found: GraphPlan, label: str = "") -> VariantPlan:
        return VariantPlan(label or one.label, found, one.variant, self.before, begins=one.begins)

    def _plan(self, variant: Variant, share: float) -> GraphPlan:
        asked = self._within(variant, share)
        planner = BodyPlanner(self.exact(variant.graph), asked.limits, asked.interrupt)
        return planner.around(variant.graph, asked)

    def _within(self, variant: Variant, share: float) -> GraphAsk:
        """What is asked of a variant, for a share of the limits."""
        return self._within_goal(variant, self.asked(variant.edited, share))

    def _within_goal(self, variant: Variant, asked: GraphAsk) -> GraphAsk:
        """With a limit of time in seconds of the graph as it is, and what is known of the variant from other limits."""
        longest = self.goal.longest
        if longest is None:
            return asked
        if longest != float("inf"):
            asked = replace(asked, budget=replace(asked.budget, latency=longest))
        return asked if asked.host is not None else replace(asked, known=self.met.of(variant))

    def _noted(self, plan: VariantPlan) -> VariantPlan:
        made = plan.found.program.predictions
        self.tried.append(TriedVariant(plan.label, made.peak_with_workspace_bytes, made.seconds))
        self.met.note(plan, self.in_program_order)
        return plan


def searches_of(variant: Variant) -> int:
    """For how many searches a variant is charged: one for itself, and those that the bodies of its loops may take."""
    return SETTINGS.searches if any(node.regions for node in variant.graph.nodes) else 1


def share_of(variant: Variant) -> float:
    """The share of the limits that each search for a variant gets."""
    return SETTINGS.variant_share / searches_of(variant)

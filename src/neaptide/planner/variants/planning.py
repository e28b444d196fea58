"""Plans of the variants of one graph for one limit: each by the inner search, under a share of the limits of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.outcome import Limits
from neaptide.planner.loop_bodies import BodyPlanner
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.plan_graph import GraphAsk, GraphPlan, finished_plan
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.estimate import ON_A_CPU, PartCosts
from neaptide.planner.variants.goal import Goal
from neaptide.planner.variants.merges import merged
from neaptide.planner.variants.met import MetPlans
from neaptide.planner.variants.on_operands import on_operands
from neaptide.planner.variants.processes.pool import Lost, WorkerPool
from neaptide.planner.variants.processes.task import PricedTask
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.shares import Shares, searches_of
from neaptide.planner.variants.variant import Variant
from neaptide.planner.variants.variant_plan import VariantPlan
from neaptide.plans import TriedVariant

AS_IT_IS = "as it is"
MERGED = "copies made once, sums in products and results on top of operands"
_ON_OPERANDS = "results on top of operands"

PricingOf = Callable[[Graph], Pricing]
Request = Callable[[Edited], GraphAsk]


@dataclass(frozen=True)
class VariantPrices:
    """What prices variants of a graph.

    Attributes:
        quick: any graph at once, from what is known.
        exact: a graph that is to be planned; it may run operations to learn what they take.
        costs: of parts, to rank variants by before one was priced.
    """

    quick: Pricing
    exact: PricingOf
    costs: PartCosts = ON_A_CPU


class VariantPlanning:
    """Plans variants of a graph, and keeps all plans that are met.

    Args:
        graph: as captured.
        asked: what for, of each variant, with the limits of all plans together; `budget_bytes` must be given, and shares
            of the time are of this graph's.
        exact: what prices a graph that is to be planned; it may run operations to learn what they take.
        choices: knows what operations mean, and what is not wanted.
        merging: do what costs nothing as well.
        met: plans of variants of this graph that searches for other limits met; those that are made here are added.
    """

    def __init__(
        self,
        graph: Graph,
        asked: Request,
        exact: PricingOf,
        choices: Choices,
        *,
        merging: bool,
        met: MetPlans,
    ) -> None:
        self.graph, self._asked, self.exact, self.choices = graph, asked, exact, choices
        self.merging, self.met = merging, met
        self.plain = Variant.captured(graph)
        first = self.asked(self.plain.edited)
        self.interrupt, self.workers = first.interrupt, first.workers
        self.shares = Shares(first.limits, first.interrupt)
        step = exact(graph).problem(graph)
        self.before, self.resident_bytes = baseline(step), step.resident_bytes
        assert first.budget_bytes is not None
        self.goal = Goal.of(first.budget, first.budget_bytes, self.before.seconds)
        self.tried: list[TriedVariant] = []
        self.pool: WorkerPool | None = None

    def asked(self, edited: Edited, limits: Limits | None = None) -> GraphAsk:
        """What is asked of a variant within limits: a draft, where plans are laid out and judged alone."""
        request = self._asked(edited)
        is_draft = request.host is None and not request.atomic
        return replace(request, is_draft=is_draft, limits=limits or request.limits)

    def finish(self, best: VariantPlan) -> VariantPlan:
        """The answer, laid out and judged."""
        found = finished_plan(
            best.variant.graph,
            self.exact(best.variant.graph),
            self.asked(best.variant.edited, self.shares.part(max(self.shares.left(), SETTINGS.search_share))),
            best.found,
        )
        return replace(best, found=found)

    def close(self) -> None:
        """End the workers."""
        if self.pool is not None:
            self.pool.close()

    def finished(self, variant: Variant, *, keeps_operands: bool = False) -> Variant:
        """A variant with what costs nothing, as it is planned and run; `keeps_operands` as in `merged`."""
        return merged(variant, self.choices, keeps_operands=keeps_operands) if self.merging else variant

    def in_program_order(self, variant: Variant) -> PlannedSequence:
        """What a variant comes to without a plan."""
        return baseline(self.exact(variant.graph).problem(variant.graph))

    def planned(
        self, label: str, variant: Variant, share: float, begins: Variant | None = None
    ) -> VariantPlan:
        """The plan of one variant.

        Args:
            label: what was done, in words.
            variant: as it runs.
            share: of the limits, for each of its searches.
            begins: what a further choice would follow from.
        """
        found = self._plan(variant, share)
        self.shares.spend(share * searches_of(variant.graph))
        return self._noted(VariantPlan(label, found, variant, self.before, begins=begins))

    def side_by_side(
        self,
        variants: Sequence[tuple[Variant, Variant]],
        share: float,
        may_begin: Callable[[int], bool],
    ) -> list[VariantPlan | None]:
        """Plans of some variants, by variant; None for those that no time was left for. Their shares are spent before.

        Args:
            variants: each with what a further choice would follow from.
            share: of the limits, for each search of each of them.
            may_begin: asked in front of each, by its number, whether it is still worth a plan.
        """

        def task(number: int) -> PricedTask:
            variant = variants[number][0]
            return PricedTask.of(variant.graph, self._within_share(variant, share), self.exact(variant.graph))

        found: list[VariantPlan | None] = []
        nowhere: list[GraphPlan | Lost | None] = [Lost() for _ in variants]
        made = nowhere if self.pool is None else self.pool.plans(len(variants), task, may_begin)
        for number, ((variant, begins), there) in enumerate(zip(variants, made, strict=True)):
            plan = None if isinstance(there, Lost) else there
            if isinstance(there, Lost) and may_begin(number):
                plan = self._plan(variant, share)
            found.append(
                None
                if plan is None
                else self._noted(VariantPlan(variant.label, plan, variant, self.before, begins=begins))
            )
        return found

    def as_it_is(self, label: str, share: float) -> VariantPlan:
        """The plan of the graph as it is, with results on top of operands where its sequence permits that and gets lower."""
        plain = self.planned(label, self.plain, share)
        return self._on_operands(label, plain.found, share, search_again=False) or plain

    @property
    def may_lie_on_operands(self) -> bool:
        """Whether results may go on top of operands: whatever puts an atomic step back counts on what it overwrites."""
        return self.merging and not self.asked(self.plain.edited).atomic

    def searched_on_operands(self, plain: GraphPlan, share: float) -> VariantPlan | None:
        """The better of two plans behind one of the graph as it is: with results on top of operands where that sequence
        permits it, and with all of them there, searched. None where neither is better than the plan.

        Args:
            plain: the plan.
            share: of the limits.
        """
        self.shares.spend(share)
        return self._on_operands(f"{AS_IT_IS}, searched longer", plain, share, search_again=True)

    def _on_operands(
        self, label: str, plain: GraphPlan, share: float, *, search_again: bool
    ) -> VariantPlan | None:
        if not self.may_lie_on_operands:
            return None
        limits = self.shares.part(share)
        lower = on_operands(
            self.graph,
            plain,
            self.goal,
            lambda edited: self.asked(edited, limits),
            self.exact,
            self.choices.objection,
            search_again=search_again,
        )
        if lower is None:
            return None
        variant = Variant((), (lower.rewrite,), lower.edited)
        return self._noted(VariantPlan(f"{label}, {_ON_OPERANDS}", lower.found, variant, self.before))

    def once_more(self, best: VariantPlan, part: float = 1.0) -> VariantPlan:
        """The best variant, searched in a part of the time that is left; the same where that finds nothing better."""
        share = part * self.shares.left() / searches_of(best.variant.graph)
        if self.shares.is_unlimited or share <= SETTINGS.search_share:
            return best
        label = f"{best.label}, searched longer"
        if best.label.startswith(AS_IT_IS):
            return self.longer_as_it_is(best, share)
        longer = self.planned(label, best.variant, share, best.begins)
        return replace(best, found=longer.found) if self.is_better(longer, best) else best

    def longer_as_it_is(self, best: VariantPlan, share: float) -> VariantPlan:
        """The graph as it is, searched longer. Where results lie follows from the sequence, so the search is for another one."""
        longer = self.as_it_is(f"{AS_IT_IS}, searched longer", share)
        return longer if self.is_better(longer, best) else best

    def is_better(self, plan: VariantPlan, than: VariantPlan) -> bool:
        """Whether a plan is closer to what is asked for."""
        return self.goal.rank_of(plan.found.program) < self.goal.rank_of(than.found.program)

    def is_free(self, plain: VariantPlan) -> bool:
        """Whether the graph as it is keeps to its budget at no more time than it takes anyway."""
        made = plain.found.program.predictions
        fits = made.peak_with_workspace_bytes <= self.goal.allowed
        return self.goal.longest is None and fits and made.seconds <= self.before.seconds

    def _plan(self, variant: Variant, share: float) -> GraphPlan:
        asked = self._within_share(variant, share)
        planner = BodyPlanner(self.exact(variant.graph), asked.limits, asked.interrupt)
        return planner.around(variant.graph, asked)

    def _within_share(self, variant: Variant, share: float) -> GraphAsk:
        """What is asked of a variant, for a share of the limits."""
        asked = self.asked(variant.edited, self.shares.part(share))
        if self.goal.longest is not None:
            if self.goal.longest != float("inf"):
                asked = replace(asked, budget=replace(asked.budget, latency=self.goal.longest))
            if asked.host is None:
                asked = replace(asked, known=self.met.of(variant))
        return asked

    def _noted(self, plan: VariantPlan) -> VariantPlan:
        made = plan.found.program.predictions
        self.tried.append(TriedVariant(plan.label, made.peak_with_workspace_bytes, made.seconds))
        self.met.note(plan, self.in_program_order)
        return plan

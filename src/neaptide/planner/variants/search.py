"""The outer search: which variant of a graph, planned by the inner search, answers best.

Prices lead. What recomputation costs in the graph as it is says how far it would bring each variant; the few that would
come furthest are measured and planned exactly, their loops' bodies by the same search under what is left of the budget.
The graph as it is stands among them, so no answer is worse than without variants. (Two searches, one inside the other;
fission and its place in the search: MAGIS, Chen et al., ASPLOS 2024.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.loop_bodies import BodyPlanner
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.plan_graph import GraphPlan, PlanRequest
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.estimate import ON_A_CPU, Estimate, Outlook, PartCosts, Price, estimates
from neaptide.planner.variants.goal import Goal
from neaptide.planner.variants.variant import Objection, Variants
from neaptide.plans import TriedVariant
from neaptide.transform.fission.candidates import Candidate
from neaptide.transform.rewrite import Rewrite

# Of the time for a program: what the graph as it is gets, what each search for a variant and its bodies does (a variant
# takes four at most), and when no further one is begun. What is left goes to the best once more.
_PLAIN_SHARE = 0.25
_SEARCH_SHARE = 0.04
_BEGUN_SHARE = 0.6
_SEARCHES = 4
_AS_IT_IS = "as it is"
# A region in parts is looked at further where the peak falls by a twentieth at least.
_WORTHWHILE = 0.95
# Regions of which one variant is planned, and variants in all.
_MOST_REGIONS = 3
_MOST_PLANNED = 5

PricingOf = Callable[[Graph], Pricing]
Request = Callable[[Edited], PlanRequest]


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """The plan that was found, and what was done to the graph before.

    Attributes:
        label: what was done, in words.
        found: of the graph after the rewrites.
        rewrites: to be replayed from the graph that was captured; none where the graph as it is was best.
        edited: what they make.
        tried: all variants that were planned, in that order.
        variants: that were looked at; None where the graph as it is was all that is needed.
    """

    label: str
    found: GraphPlan
    rewrites: tuple[Rewrite, ...]
    edited: Edited
    tried: tuple[TriedVariant, ...] = ()
    variants: Variants | None = None


def plan_variants(
    graph: Graph,
    asked: Request,
    limits: Limits,
    *,
    quick: Pricing,
    exact: PricingOf,
    objection: Objection,
    only: Callable[[Candidate], bool] = lambda _: True,
    costs: PartCosts = ON_A_CPU,
    interrupt: threading.Event | None = None,
) -> VariantPlan:
    """Search over variants of a graph, each planned within the budget.

    Args:
        graph: as captured.
        asked: what for, of each variant; `budget_bytes` must be given, and shares of the time are of this graph's.
        limits: of the whole search.
        quick: prices any graph at once, from what is known.
        exact: what prices a graph that is to be planned; it may run operations to learn what they take.
        objection: why a changed graph is not wanted; None where it is.
        only: regions that may be split; all by default.
        costs: of parts, to rank variants by before one was priced.
        interrupt: set it to get the best so far.

    Returns:
        The best plan found, judged; the graph as it is where no variant is better.
    """
    return _Search(graph, asked, limits, quick, exact, objection, only, costs, interrupt).run()


class _Search:
    def __init__(
        self,
        graph: Graph,
        asked: Request,
        limits: Limits,
        quick: Pricing,
        exact: PricingOf,
        objection: Objection,
        only: Callable[[Candidate], bool],
        costs: PartCosts,
        interrupt: threading.Event | None,
    ) -> None:
        self.graph, self.asked, self.limits = graph, asked, limits
        self.quick, self.exact, self.objection = quick, exact, objection
        self.only, self.costs, self.interrupt = only, costs, interrupt
        self.guard = LimitGuard(limits, interrupt)
        self.before = baseline(exact(graph).problem(graph))
        self.plain = Edited.unchanged(graph)
        first = asked(self.plain)
        assert first.budget_bytes is not None
        self.goal = Goal.of(first.budget, first.budget_bytes, self.before.seconds)
        self.tried: list[TriedVariant] = []
        self.spent = 0.0

    def run(self) -> VariantPlan:
        plain = self._planned(_AS_IT_IS, self.plain, _PLAIN_SHARE)
        best = VariantPlan(_AS_IT_IS, plain, (), self.plain)
        if self._is_free(plain):
            return replace(best, tried=tuple(self.tried))
        variants = Variants(self.graph, self.quick.registry, self.objection)
        best = self._once_more(self._best_of(variants, best))
        return replace(best, tried=tuple(self.tried), variants=variants)

    def _best_of(self, variants: Variants, best: VariantPlan) -> VariantPlan:
        """The best of the graph as it is and of the variants that promise most."""
        price = Price.of(self.before, _sequence(best.found))
        lowest = max(self.before.peak_with_workspace_bytes * _WORTHWHILE, 1.0)
        looked = [seen for seen in self._looked_at(variants) if seen.peak_bytes < lowest]
        regions: list[Candidate] = []  # of variants that were planned
        best_region: Candidate | None = None
        # One is planned even where the graph as it is took all the time.
        while len(regions) < _MOST_PLANNED and (not regions or self._left() > 1.0 - _BEGUN_SHARE):
            among = _next(looked, regions, best_region)
            if not among:
                break
            estimate = min(among, key=lambda seen: price.rank(seen, self.goal))
            looked.remove(estimate)
            variant = variants.in_parts(estimate.region, estimate.parts)
            if variant is None:
                looked = [seen for seen in looked if seen.region is not estimate.region]
                continue
            graph = variant.edited.graph
            seconds = baseline(self.exact(graph).problem(graph)).seconds
            price = price.seen(estimate, seconds)
            if self._is_too_slow(seconds, best):
                continue
            regions.append(estimate.region)
            found = self._planned(variant.label, variant.edited, _SEARCH_SHARE)
            if self._is_better(found, best.found):
                best = VariantPlan(variant.label, found, variant.rewrites, variant.edited)
                best_region = estimate.region
        return best

    def _once_more(self, best: VariantPlan) -> VariantPlan:
        """The best variant, searched in the time that is left; the same where that finds nothing better."""
        share = self._left() / (_SEARCHES if best.rewrites else 1)
        if self._is_unlimited() or share <= _SEARCH_SHARE:
            return best
        found = self._planned(f"{best.label}, searched longer", best.edited, share)
        return replace(best, found=found) if self._is_better(found, best.found) else best

    def _is_too_slow(self, seconds: float, best: VariantPlan) -> bool:
        """Whether a variant cannot be the answer for what it takes before anything is recomputed."""
        if self.goal.longest is not None:
            return seconds > self.goal.longest
        made = best.found.program.predictions
        return made.peak_with_workspace_bytes <= self.goal.allowed and seconds >= made.seconds

    def _is_better(self, found: GraphPlan, than: GraphPlan) -> bool:
        return self.goal.rank_of(found.program) < self.goal.rank_of(than.program)

    def _left(self) -> float:
        """Share of the time, or of the work, that is left."""
        if self.guard.check_now() is not None:
            return 0.0
        remaining = self.guard.remaining_s()
        if self.limits.time_s and remaining is not None:
            return remaining / self.limits.time_s
        return 1.0 if self.limits.work is None else max(1.0 - self.spent, 0.0)

    def _is_unlimited(self) -> bool:
        return self.limits.time_s is None and self.limits.work is None

    def _looked_at(self, variants: Variants) -> list[Estimate]:
        """Every region in every number of parts."""
        outlook = Outlook(variants.begun.graph, self.quick, self.costs)
        return estimates(outlook, filter(self.only, variants.regions))

    def _planned(self, label: str, edited: Edited, share: float) -> GraphPlan:
        """The plan of one variant."""
        planner = BodyPlanner(self.exact(edited.graph), self._part(share), self.interrupt)
        asked = self.asked(edited)
        if self.goal.longest is not None and self.goal.longest != float("inf"):
            asked = replace(asked, budget=replace(asked.budget, latency=self.goal.longest))
        found = planner.around(edited.graph, asked)
        self.spent += share * (1 if edited is self.plain else _SEARCHES)
        made = found.program.predictions
        self.tried.append(TriedVariant(label, made.peak_with_workspace_bytes, made.seconds))
        return found

    def _part(self, share: float) -> Limits:
        """Limits of one inner search."""
        time_s = None if self.limits.time_s is None else share * self.limits.time_s
        work = None if self.limits.work is None else max(int(share * self.limits.work), 1)
        return Limits(time_s, work, self.limits.seed)

    def _is_free(self, plain: GraphPlan) -> bool:
        """Whether the graph as it is keeps to its budget at no more time than it takes anyway."""
        made = plain.program.predictions
        fits = made.peak_with_workspace_bytes <= self.goal.allowed
        return self.goal.longest is None and fits and made.seconds <= self.before.seconds


def _next(
    looked: Sequence[Estimate], planned: Sequence[Candidate], best: Candidate | None
) -> Sequence[Estimate]:
    """Among which to choose: each region once, as far as it promises something, then the best in other numbers of parts."""
    fresh = [seen for seen in looked if not any(seen.region is region for region in planned)]
    again = [seen for seen in looked if seen.region is best]
    return fresh if fresh and len(planned) < _MOST_REGIONS else again or fresh


def _sequence(plan: GraphPlan) -> PlannedSequence:
    made = plan.program.predictions
    return PlannedSequence(
        plan.program.sequence,
        plan.program.strategy,
        made.peak_bytes,
        made.peak_with_workspace_bytes,
        made.seconds,
    )

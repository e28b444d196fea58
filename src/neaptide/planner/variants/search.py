"""The outer search: which variant of a graph, planned by the inner search, answers best.

Prices lead. What recomputation costs in the graph as it is says how far it would bring each variant; the few that would
come furthest are measured and planned exactly, their loops' bodies by the same search under what is left of the budget.
The graph as it is stands among them, so no answer is worse than without variants. What costs nothing is done to all others:
sums go into products and results on top of operands, which takes bytes and buys time for recomputation. (Two searches, one inside the other;
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
from neaptide.planner.variants.choices import Choice, Choices, Objection
from neaptide.planner.variants.estimate import ON_A_CPU, Estimate, PartCosts, estimates
from neaptide.planner.variants.goal import Goal
from neaptide.planner.variants.merges import merged, unjoined
from neaptide.planner.variants.price import Price
from neaptide.planner.variants.variant import Variant
from neaptide.plans import TriedVariant

# Of the time for a program: what the graph as it is gets, what the variant that all others begin with does, and each search
# for a variant and its bodies (a variant takes four at most). What is left goes to the best once more.
_PLAIN_SHARE = 0.1
_BEGUN_SHARE = 0.1
_SEARCH_SHARE = 0.04
_SEARCHES = 4
_AS_IT_IS = "as it is"
_MERGED = "sums in products and results on top of operands"
# A region in parts is looked at further where the peak falls by a twentieth at least.
_WORTHWHILE = 0.95


@dataclass(frozen=True, slots=True)
class _Round:
    """How far the search looks at what may follow from one variant.

    Attributes:
        choices: of which one variant is planned.
        planned: variants in all.
        begun: share of the time that must be left for one more.
    """

    choices: int
    planned: int
    begun: float


_FIRST = _Round(choices=3, planned=5, begun=0.4)
_NEXT = _Round(choices=2, planned=3, begun=0.25)
_MOST_ROUNDS = 6

PricingOf = Callable[[Graph], Pricing]
Request = Callable[[Edited], PlanRequest]


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """The plan that was found, and what was done to the graph before.

    Attributes:
        label: what was done, in words.
        found: of the graph after the rewrites.
        variant: what was done; nothing where the graph as it is was best.
        before: the graph as it is, in program order.
        tried: all variants that were planned, in that order.
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


def plan_variants(
    graph: Graph,
    asked: Request,
    limits: Limits,
    *,
    quick: Pricing,
    exact: PricingOf,
    objection: Objection,
    only: Callable[[Choice], bool] = lambda _: True,
    merging: bool = True,
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
        only: what may be chosen; all by default.
        merging: do what costs nothing as well, and look at convolutions of pieces.
        costs: of parts, to rank variants by before one was priced.
        interrupt: set it to get the best so far.

    Returns:
        The best plan found, judged; the graph as it is where no variant is better.
    """
    return _Search(graph, asked, limits, quick, exact, objection, only, merging, costs, interrupt).run()


class _Search:
    def __init__(
        self,
        graph: Graph,
        asked: Request,
        limits: Limits,
        quick: Pricing,
        exact: PricingOf,
        objection: Objection,
        only: Callable[[Choice], bool],
        merging: bool,
        costs: PartCosts,
        interrupt: threading.Event | None,
    ) -> None:
        self.graph, self.asked, self.limits = graph, asked, limits
        self.quick, self.exact, self.objection = quick, exact, objection
        self.only, self.merging, self.costs, self.interrupt = only, merging, costs, interrupt
        self.guard = LimitGuard(limits, interrupt)
        self.before = baseline(exact(graph).problem(graph))
        self.plain = Edited.unchanged(graph)
        first = asked(self.plain)
        assert first.budget_bytes is not None
        self.goal = Goal.of(first.budget, first.budget_bytes, self.before.seconds)
        self.choices = Choices(quick.registry, objection)
        self.tried: list[TriedVariant] = []
        self.spent = 0.0

    def run(self) -> VariantPlan:
        plain = self._planned(_AS_IT_IS, self.plain, _PLAIN_SHARE)
        best = VariantPlan(_AS_IT_IS, plain, Variant.captured(self.graph), self.before)
        if self._is_free(plain):
            return replace(best, tried=tuple(self.tried))
        price = Price.of(self.before, _sequence(plain))
        begun = self._unjoined(self.choices.begun(self.graph), price)
        best, price = self._with_merges(begun, best, price)
        choices = self.choices.after(begun)
        best = self._once_more(self._best_of_all(begun, choices, price, best))
        return replace(best, tried=tuple(self.tried), begun=begun, choices=choices)

    def _unjoined(self, begun: Variant, price: Price) -> Variant:
        """A variant without joins in front of convolutions, where the bytes are worth the time."""
        apart = unjoined(begun, self.choices) if self.merging else begun
        if len(apart.rewrites) == len(begun.rewrites):
            return begun
        return min(begun, apart, key=lambda variant: self._brought(variant, price))

    def _brought(self, variant: Variant, price: Price) -> tuple[float, ...]:
        """What recomputation would bring a variant to, about; lower is better."""
        made = self._in_program_order(self._finished(variant))
        return price.brought(made.peak_with_workspace_bytes, made.seconds, self.goal)

    def _with_merges(self, begun: Variant, best: VariantPlan, price: Price) -> tuple[VariantPlan, Price]:
        """The better of a plan and of what all variants begin with, where more than means was changed; its price."""
        variant = self._finished(begun)
        if len(variant.rewrites) == len(begun.rewrites) and not begun.labels:
            return best, price
        label = ", then ".join((*variant.labels, _MERGED))
        found = self._planned(label, variant.edited, _BEGUN_SHARE)
        price = price.after(self._in_program_order(variant), _sequence(found))
        return (
            VariantPlan(label, found, variant, self.before) if self._is_better(found, best.found) else best
        ), price

    def _finished(self, variant: Variant) -> Variant:
        """A variant with what costs nothing, as it is planned and run."""
        return merged(variant, self.choices) if self.merging else variant

    def _in_program_order(self, variant: Variant) -> PlannedSequence:
        return baseline(self.exact(variant.graph).problem(variant.graph))

    def _best_of_all(
        self, begun: Variant, choices: Sequence[Choice], price: Price, best: VariantPlan
    ) -> VariantPlan:
        """The best of a plan and of the variants that are reached from another, one choice at a time."""
        wanted = _FIRST
        for _ in range(_MOST_ROUNDS):
            found = self._best_after(begun, choices, price, best, wanted)
            if found is best or self._left() <= _NEXT.begun:
                return found
            assert found.begins is not None
            best, begun, wanted = found, found.begins, _NEXT
            choices = self.choices.after(begun)
            price = price.after(self._in_program_order(found.variant), _sequence(best.found))
        return best

    def _best_after(
        self, begun: Variant, choices: Sequence[Choice], price: Price, best: VariantPlan, wanted: _Round
    ) -> VariantPlan:
        """The best of a plan and of what follows from a variant, of which those that promise most are planned."""
        planned: list[Choice] = []
        best_choice: Choice | None = None
        looked = self._looked_at(begun, choices)
        # One is planned even where the graph as it is took all the time.
        while len(planned) < wanted.planned and self._may_begin(wanted, planned):
            among = _next(looked, planned, best_choice, wanted.choices)
            if not among:
                break
            estimate = min(among, key=lambda seen: price.rank(seen, self.goal))
            if self.goal.longest is not None and price.priced and price.rank(estimate, self.goal)[0] > 0:
                break  # the rest takes too long, as far as is known
            looked.remove(estimate)
            begins = self.choices.taken(estimate.choice, estimate.parts)
            if begins is None:
                looked = [seen for seen in looked if seen.choice is not estimate.choice]
                continue
            variant = self._finished(begins)
            seconds = self._in_program_order(variant).seconds
            price = price.seen(estimate, seconds)
            if self._is_too_slow(seconds, best):
                continue
            planned.append(estimate.choice)
            found = self._planned(variant.label, variant.edited, _SEARCH_SHARE)
            if self._is_better(found, best.found):
                best = VariantPlan(variant.label, found, variant, self.before, begins=begins)
                best_choice = estimate.choice
        return best

    def _may_begin(self, wanted: _Round, planned: Sequence[Choice]) -> bool:
        """Whether time is left for one more variant; the very first is planned in any case."""
        return (wanted is _FIRST and not planned) or self._left() > wanted.begun

    def _once_more(self, best: VariantPlan) -> VariantPlan:
        """The best variant, searched in the time that is left; the same where that finds nothing better."""
        share = self._left() / (_SEARCHES if best.variant.rewrites else 1)
        if self._is_unlimited() or share <= _SEARCH_SHARE:
            return best
        found = self._planned(f"{best.label}, searched longer", best.variant.edited, share)
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

    def _looked_at(self, begun: Variant, choices: Sequence[Choice]) -> list[Estimate]:
        """What may follow from a variant, in every number of parts, where that promises something."""
        wanted = [choice for choice in choices if self.only(choice)]
        before = baseline(self.quick.problem(begun.graph)).peak_with_workspace_bytes
        lowest = max(before * _WORTHWHILE, 1.0)
        seen = estimates(begun, wanted, self.quick, self.costs)
        return [estimate for estimate in seen if estimate.peak_bytes < lowest]

    def _planned(self, label: str, edited: Edited, share: float) -> GraphPlan:
        """The plan of one variant."""
        planner = BodyPlanner(self.exact(edited.graph), self._part(share), self.interrupt)
        asked = self.asked(edited)
        if self.goal.longest is not None and self.goal.longest != float("inf"):
            asked = replace(asked, budget=replace(asked.budget, latency=self.goal.longest))
        found = planner.around(edited.graph, asked)
        self.spent += share * (_SEARCHES if any(node.regions for node in edited.graph.nodes) else 1)
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
    looked: Sequence[Estimate], planned: Sequence[Choice], best: Choice | None, most: int
) -> Sequence[Estimate]:
    """Among which to choose: each choice once, up to some, as far as it promises something, then the best in other numbers of parts."""
    fresh = [seen for seen in looked if not any(seen.choice is choice for choice in planned)]
    again = [seen for seen in looked if seen.choice is best]
    return fresh if fresh and len(planned) < most else again or fresh


def _sequence(plan: GraphPlan) -> PlannedSequence:
    made = plan.program.predictions
    return PlannedSequence(
        plan.program.sequence,
        plan.program.strategy,
        made.peak_bytes,
        made.peak_with_workspace_bytes,
        made.seconds,
    )

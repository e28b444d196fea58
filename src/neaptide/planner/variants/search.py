"""The outer search: which variant of a graph, planned by the inner search, answers best.

Prices lead. What recomputation costs in the graph as it is says how far it would bring each variant; the few that would
come furthest are measured and planned exactly, their loops' bodies by the same search under what is left of the budget.
The graph as it is stands among them, so no answer is worse than without variants. What costs nothing is done to all others:
copies of copies are made once, sums go into products and results on top of operands. That takes bytes and buys time for
recomputation. (Two searches, one inside the other; fission and its place in the search: MAGIS, Chen et al., ASPLOS 2024.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.outcome import Limits, Stopwatch
from neaptide.planner.loop_bodies import planned_sequence
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.plan_graph import GraphPlan, PlanRequest
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choice, Choices, Objection
from neaptide.planner.variants.estimate import ON_A_CPU, Estimate, PartCosts, estimates
from neaptide.planner.variants.following import followed
from neaptide.planner.variants.goal import Goal
from neaptide.planner.variants.joins import joins, with_one_join_more, without_joins
from neaptide.planner.variants.merges import merged
from neaptide.planner.variants.on_operands import on_operands
from neaptide.planner.variants.price import Price
from neaptide.planner.variants.processes.pool import Lost, WorkerPool, started_pool
from neaptide.planner.variants.processes.task import PlanTask, PricedTask
from neaptide.planner.variants.rounds import Looking, Picked, Round
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.shares import Shares, searches_of
from neaptide.planner.variants.variant import Decision, Variant
from neaptide.planner.variants.variant_plan import VariantPlan
from neaptide.plans import TriedVariant

_AS_IT_IS = "as it is"
_ON_OPERANDS = "results on top of operands in its sequence"
_MERGED = "copies made once, sums in products and results on top of operands"

PricingOf = Callable[[Graph], Pricing]
Request = Callable[[Edited], PlanRequest]


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
    choices: Choices | None = None,
    interrupt: threading.Event | None = None,
    workers: int | None = 1,
    like: Sequence[Decision] | None = None,
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
        choices: of a search before this one, for the same graph with the same objection; what it found is not looked for again.
        interrupt: set it to get the best so far.
        workers: processes that plan the variants of a round side by side; 1 plans them here, one after the other. None:
            as many as there are cores, where that saves time. Under a limit of work all of them give the same answer.
        like: what was decided for a graph that is much like this one: then nothing else is looked at.

    Returns:
        The best plan found, judged; the graph as it is where no variant is better.
    """
    known = choices or Choices(quick.registry, objection)
    search = _Search(graph, asked, limits, quick, exact, known, only, merging, costs, interrupt)
    try:
        return search.run(workers) if like is None else search.run_like(like)
    finally:
        search.close()


class _Search:
    def __init__(
        self,
        graph: Graph,
        asked: Request,
        limits: Limits,
        quick: Pricing,
        exact: PricingOf,
        choices: Choices,
        only: Callable[[Choice], bool],
        merging: bool,
        costs: PartCosts,
        interrupt: threading.Event | None,
    ) -> None:
        self.graph, self.asked = graph, asked
        self.quick, self.exact, self.choices = quick, exact, choices
        self.only, self.merging, self.costs, self.interrupt = only, merging, costs, interrupt
        self.shares = Shares(limits, interrupt)
        self.before = baseline(exact(graph).problem(graph))
        self.plain = Edited.unchanged(graph)
        first = asked(self.plain)
        assert first.budget_bytes is not None
        self.goal = Goal.of(first.budget, first.budget_bytes, self.before.seconds)
        self.tried: list[TriedVariant] = []
        self.pool: WorkerPool | None = None

    def close(self) -> None:
        """End the workers."""
        if self.pool is not None:
            self.pool.close()

    def run(self, workers: int | None) -> VariantPlan:
        watch = Stopwatch()
        best = self._as_it_is(_AS_IT_IS, SETTINGS.first_share)
        plain = best.found
        if self._is_free(plain):
            return replace(best, tried=tuple(self.tried))
        # They load while what all variants begin with is planned.
        self.pool = started_pool(workers, Round.first().choices, self.quick, watch.seconds(), self.interrupt)
        price = Price.of(self.before, planned_sequence(plain))
        looking = Stopwatch()
        begun, *others = self._beginnings(price)
        if not self._may_look(begun, looking.seconds()):
            return replace(self._longer_as_it_is(best, SETTINGS.whole_part), tried=tuple(self.tried))
        best, price = self._with_merges(begun, best, price)
        whole, choices = best, self.choices.after(begun)
        best = self._best_of_all(begun, choices, price, best)
        for other in others:
            best = self._best_after(other, self.choices.after(other), price, best, Round.behind())
        best = self._rejoined(best, begun)
        if any(node.regions for node in best.variant.graph.nodes):
            # It was searched for a shorter time than what recomputation alone takes to get low.
            whole = self._once_more(whole, SETTINGS.whole_part)
            best = whole if self._is_better(whole.found, best.found) else best
        best = self._once_more(best)
        return replace(best, tried=tuple(self.tried), begun=begun, choices=choices)

    def run_like(self, decisions: Sequence[Decision]) -> VariantPlan:
        """The better of the graph as it is and of one variant, after what was decided for another graph."""
        best = self._as_it_is(_AS_IT_IS, SETTINGS.first_share)
        if not self._is_free(best.found):
            begins = followed(self.choices.begun(self.graph), decisions, self.choices)
            best = self._or(best, begins, max(self.shares.left(), SETTINGS.first_share))
        return replace(best, tried=tuple(self.tried))

    def _as_it_is(self, label: str, share: float) -> VariantPlan:
        """The plan of the graph as it is, with results on top of operands where its sequence permits that and gets lower."""
        found = self._planned(label, self.plain, share)
        plain = VariantPlan(label, found, Variant.captured(self.graph), self.before)
        if not self.merging or self.asked(self.plain).atomic:
            return plain
        lower = on_operands(
            self.graph,
            found,
            self.goal,
            self.asked,
            self.exact,
            self.choices.objection,
            self.shares.part(share),
            self.interrupt,
            search_again=False,
        )
        if lower is None:
            return plain
        label = f"{label}, {_ON_OPERANDS}"
        self._try(label, lower.found)
        return replace(
            plain, label=label, found=lower.found, variant=Variant((), (lower.rewrite,), lower.edited)
        )

    def _or(self, best: VariantPlan, begins: Variant, share: float) -> VariantPlan:
        """The better of a plan and of that of another variant, whose searches together get a share of the time."""
        variant = self._finished(begins)
        if self._is_too_slow(self._in_program_order(variant).seconds, best):
            return best
        label = variant.label or _MERGED
        found = self._planned(label, variant.edited, share / searches_of(variant.graph))
        if not self._is_better(found, best.found):
            return best
        return VariantPlan(label, found, variant, self.before, begins=begins)

    def _rejoined(self, best: VariantPlan, begun: Variant) -> VariantPlan:
        """The best plan with some joins made after all: those whose time is worth more than their bytes beside the rest."""
        if all(decision.names is None for decision in best.variant.decisions):
            return best
        # What recomputation costs beside it must be known.
        best = self._once_more(best, SETTINGS.priced_part)
        plain = self.choices.begun(self.graph)
        known = joins(plain, self.choices, lambda graph: self.exact(graph).problem(graph))
        whole = self._in_program_order(self._finished(begun)).peak_with_workspace_bytes
        while self.shares.left() > Round.later().begun:
            made = self._in_program_order(best.variant)
            price = Price.of(made, planned_sequence(best.found))
            # In parts a join takes about as much less as everything does.
            decisions = with_one_join_more(best.variant.decisions, known, price.share_per_second, whole)
            if decisions is None:
                return best
            better = self._or(
                best, followed(plain, decisions, self.choices), SETTINGS.searches * SETTINGS.search_share
            )
            if better is best:
                return best
            best = better
        return best

    def _beginnings(self, price: Price) -> list[Variant]:
        """What the first choices may follow from: with joins in front of convolutions and without, what promises more first."""
        begun = self.choices.begun(self.graph)
        apart = without_joins(begun, self.choices) if self.merging else begun
        if len(apart.rewrites) == len(begun.rewrites):
            return [begun]
        return sorted((begun, apart), key=lambda variant: self._brought(variant, price))

    def _brought(self, variant: Variant, price: Price) -> tuple[float, ...]:
        """What recomputation would bring a variant to, about; lower is better."""
        made = self._in_program_order(self._finished(variant))
        return price.brought(made.peak_with_workspace_bytes, made.seconds, self.goal)

    def _with_merges(self, begun: Variant, best: VariantPlan, price: Price) -> tuple[VariantPlan, Price]:
        """The better of a plan and of what all variants begin with, where more than means was changed; its price."""
        variant = self._finished(begun)
        if len(variant.rewrites) == len(begun.rewrites) and not begun.decisions:
            return best, price
        if not begun.labels and self._only_loses(variant):
            self.merging = False
            return best, price
        label = ", then ".join((*variant.labels, _MERGED))
        found = self._planned(label, variant.edited, SETTINGS.first_share)
        price = price.after(self._in_program_order(variant), planned_sequence(found))
        return (
            VariantPlan(label, found, variant, self.before) if self._is_better(found, best.found) else best
        ), price

    def _only_loses(self, variant: Variant) -> bool:
        """Whether a variant takes longer in program order, and no fewer bytes: where products are small, sums in them cost time."""
        made, before = self._in_program_order(variant), self.before
        is_lower = made.peak_with_workspace_bytes < before.peak_with_workspace_bytes
        return made.seconds > before.seconds and not is_lower

    def _finished(self, variant: Variant) -> Variant:
        """A variant with what costs nothing, as it is planned and run."""
        return merged(variant, self.choices) if self.merging else variant

    def _in_program_order(self, variant: Variant) -> PlannedSequence:
        return baseline(self.exact(variant.graph).problem(variant.graph))

    def _best_of_all(
        self, begun: Variant, choices: Sequence[Choice], price: Price, best: VariantPlan
    ) -> VariantPlan:
        """The best of a plan and of the variants that are reached from another, one choice at a time."""
        wanted = Round.first()
        for _ in range(SETTINGS.rounds):
            found = self._best_after(begun, choices, price, best, wanted)
            if found is best or self.shares.left() <= Round.later().begun:
                return found
            assert found.begins is not None
            best, begun, wanted = found, found.begins, Round.later()
            choices = self.choices.after(begun)
            price = price.after(self._in_program_order(found.variant), planned_sequence(best.found))
        return best

    def _best_after(
        self, begun: Variant, choices: Sequence[Choice], price: Price, best: VariantPlan, wanted: Round
    ) -> VariantPlan:
        """The best of a plan and of what follows from a variant, of which those that promise most are planned."""
        looking = Looking(self._looked_at(begun, choices), price)
        while picked := self._picked(looking, best, wanted):
            for one, found in zip(picked, self._all_planned(picked, looking, wanted), strict=True):
                if found is not None and self._is_better(found, best.found):
                    best = VariantPlan(one.variant.label, found, one.variant, self.before, begins=one.begins)
                    looking.best = one.choice
        return best

    def _picked(self, looking: Looking, best: VariantPlan, wanted: Round) -> list[Picked]:
        """What is planned next, none of it in the light of another's plan: those that promise most, in that order.

        First each choice once, up to some; then the best of them in other numbers of parts.
        """
        picked: list[Picked] = []
        was_fresh = True
        while len(looking.planned) < wanted.planned and self._may_pick(wanted, looking):
            looked, is_fresh = looking.among(wanted.choices)
            # What is chosen then depends on the plans of these.
            is_next = is_fresh is not was_fresh or len(looking.planned) == wanted.choices
            if not looked or (picked and is_next):
                break
            was_fresh = is_fresh
            estimate = min(looked, key=lambda seen: looking.price.rank(seen, self.goal))
            beyond = looking.price.rank(estimate, self.goal)[0] > 0
            if self.goal.longest is not None and looking.price.priced and beyond:
                break  # the rest takes too long, as far as is known
            if one := self._priced(looking, estimate, best):
                picked.append(one)
                self.shares.spend(SETTINGS.search_share * searches_of(one.variant.graph))
        return picked

    def _priced(self, looking: Looking, estimate: Estimate, best: VariantPlan) -> Picked | None:
        """A variant of which an estimate was made, priced exactly; None where it is not worth a plan."""
        looking.looked.remove(estimate)
        begins = self.choices.taken(estimate.choice, estimate.parts)
        if begins is None:
            looking.drop(estimate.choice)
            return None
        variant = self._finished(begins)
        seconds = self._in_program_order(variant).seconds
        looking.price = looking.price.seen(estimate, seconds)
        if self._is_too_slow(seconds, best):
            return None
        looking.planned.append(estimate.choice)
        return Picked(estimate.choice, begins, variant)

    def _all_planned(
        self, picked: Sequence[Picked], looking: Looking, wanted: Round
    ) -> list[GraphPlan | None]:
        """Plans of some variants, by variant; None for those that no time was left for."""

        def may_begin(number: int) -> bool:
            # One is planned even where the graph as it is took all the time.
            is_first = wanted == Round.first() and picked[number].choice is looking.planned[0]
            return is_first or self.shares.of_time() > wanted.begun

        def task(number: int) -> PricedTask:
            edited = picked[number].variant.edited
            return PricedTask.of(self._task(edited, SETTINGS.search_share), self.exact(edited.graph))

        found: list[GraphPlan | None] = []
        tasks = range(len(picked))
        nowhere: list[GraphPlan | Lost | None] = [Lost() for _ in tasks]
        made = nowhere if self.pool is None else self.pool.plans(len(picked), task, may_begin)
        for number, one, there in zip(tasks, picked, made, strict=True):
            plan = None if isinstance(there, Lost) else there
            if isinstance(there, Lost) and may_begin(number):
                plan = self._plan(one.variant.edited, SETTINGS.search_share)
            found.append(plan)
            if plan is not None:
                self._try(one.variant.label, plan)
        return found

    def _may_pick(self, wanted: Round, looking: Looking) -> bool:
        """Whether time or work is left for one more variant; the very first is planned in any case."""
        return (wanted == Round.first() and not looking.planned) or self.shares.left() > wanted.begun

    def _once_more(self, best: VariantPlan, part: float = 1.0) -> VariantPlan:
        """The best variant, searched in a part of the time that is left; the same where that finds nothing better."""
        share = part * self.shares.left() / searches_of(best.variant.graph)
        if self.shares.is_unlimited or share <= SETTINGS.search_share:
            return best
        label = f"{best.label}, searched longer"
        if best.label.startswith(_AS_IT_IS):
            return self._longer_as_it_is(best, share)
        found = self._planned(label, best.variant.edited, share)
        return replace(best, found=found) if self._is_better(found, best.found) else best

    def _longer_as_it_is(self, best: VariantPlan, share: float) -> VariantPlan:
        """The graph as it is, searched longer. Where results lie follows from the sequence, so the search is for another one."""
        longer = self._as_it_is(f"{_AS_IT_IS}, searched longer", share)
        return longer if self._is_better(longer.found, best.found) else best

    def _may_look(self, begun: Variant, took_s: float) -> bool:
        """Whether finding what may follow leaves time to plan it; it takes as long as finding what stands in its way."""
        if self.shares.limits.time_s is None or self.choices.knows(begun):
            return True
        return self.shares.of_time() - took_s / self.shares.limits.time_s > SETTINGS.search_share

    def _is_too_slow(self, seconds: float, best: VariantPlan) -> bool:
        """Whether a variant cannot be the answer for what it takes before anything is recomputed."""
        if self.goal.longest is not None:
            return seconds > self.goal.longest
        made = best.found.program.predictions
        return made.peak_with_workspace_bytes <= self.goal.allowed and seconds >= made.seconds

    def _is_better(self, found: GraphPlan, than: GraphPlan) -> bool:
        return self.goal.rank_of(found.program) < self.goal.rank_of(than.program)

    def _looked_at(self, begun: Variant, choices: Sequence[Choice]) -> list[Estimate]:
        """What may follow from a variant, in every number of parts, where that promises something."""
        wanted = [choice for choice in choices if self.only(choice)]
        before = baseline(self.quick.problem(begun.graph)).peak_with_workspace_bytes
        lowest = max(before * SETTINGS.worthwhile, 1.0)
        seen = estimates(begun, wanted, self.quick, self.costs)
        return [estimate for estimate in seen if estimate.peak_bytes < lowest]

    def _planned(self, label: str, edited: Edited, share: float) -> GraphPlan:
        """The plan of one variant."""
        found = self._plan(edited, share)
        self.shares.spend(share * searches_of(edited.graph))
        self._try(label, found)
        return found

    def _plan(self, edited: Edited, share: float) -> GraphPlan:
        return self._task(edited, share).planned(self.exact(edited.graph), self.interrupt)

    def _task(self, edited: Edited, share: float) -> PlanTask:
        asked = self.asked(edited)
        if self.goal.longest is not None and self.goal.longest != float("inf"):
            asked = replace(asked, budget=replace(asked.budget, latency=self.goal.longest))
        return PlanTask(edited.graph, asked, self.shares.part(share))

    def _try(self, label: str, found: GraphPlan) -> None:
        made = found.program.predictions
        self.tried.append(TriedVariant(label, made.peak_with_workspace_bytes, made.seconds))

    def _is_free(self, plain: GraphPlan) -> bool:
        """Whether the graph as it is keeps to its budget at no more time than it takes anyway."""
        made = plain.program.predictions
        fits = made.peak_with_workspace_bytes <= self.goal.allowed
        return self.goal.longest is None and fits and made.seconds <= self.before.seconds

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

from neaptide.ir.graph import Graph
from neaptide.outcome import Limits, Stopwatch
from neaptide.planner.loop_bodies import planned_sequence
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choice, Choices, Objection
from neaptide.planner.variants.estimate import ON_A_CPU, Estimate, PartCosts, estimates
from neaptide.planner.variants.following import followed
from neaptide.planner.variants.joins import joins, with_one_join_more, without_joins
from neaptide.planner.variants.met import MetPlans, MetVariant, PricedVariant
from neaptide.planner.variants.planning import AS_IT_IS, MERGED, PricingOf, Request, VariantPlanning
from neaptide.planner.variants.price import Price
from neaptide.planner.variants.processes.pool import started_pool
from neaptide.planner.variants.rounds import Looking, Picked, Round
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.shares import searches_of
from neaptide.planner.variants.variant import Decision, Variant
from neaptide.planner.variants.variant_plan import VariantPlan
from neaptide.transform.rewrite import Rewrite


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
    met: MetPlans | None = None,
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
        met: what searches for other limits met, of the same graph under the same prices. The answer is no worse than any of
            it. Its variants are planned first, and what this search meets is added.

    Returns:
        The best plan found, judged; the graph as it is where no variant is better.
    """
    known = choices or Choices(quick.registry, objection)
    search = _Search(
        graph, asked, limits, quick, exact, known, only, merging, costs, interrupt, met or MetPlans()
    )
    try:
        if like is not None:
            return search.finish(search.run_like(like))
        return search.finish(search.run_on() if search.met.of(search.plain) else search.run(workers))
    finally:
        search.close()


class _Search(VariantPlanning):
    """The search for one limit."""

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
        met: MetPlans,
    ) -> None:
        super().__init__(graph, asked, limits, exact, choices, merging=merging, met=met, interrupt=interrupt)
        self.quick, self.only, self.costs = quick, only, costs

    def run(self, workers: int | None) -> VariantPlan:
        watch = Stopwatch()
        best = self.as_it_is(AS_IT_IS, SETTINGS.first_share)
        plain = best.found
        if self.is_free(best):
            return replace(best, tried=tuple(self.tried))
        # They load while what all variants begin with is planned.
        self.pool = started_pool(workers, Round.first().choices, self.quick, watch.seconds(), self.interrupt)
        price = Price.of(self.before, planned_sequence(plain))
        looking = Stopwatch()
        begun, *others = self._beginnings(price)
        if not self._may_look(begun, looking.seconds()):
            return replace(self.longer_as_it_is(best, SETTINGS.whole_part), tried=tuple(self.tried))
        best, price = self._with_merges(begun, best, price)
        whole, choices = best, self.choices.after(begun)
        best = self._best_of_all(begun, choices, price, best, Round.first())
        for other in others:
            best = self._best_after(other, self.choices.after(other), price, best, Round.behind())
        best = self._with_operands(best)
        best = self._rejoined(best, begun)
        if any(node.regions for node in best.variant.graph.nodes):
            # It was searched for a shorter time than what recomputation alone takes to get low.
            whole = self.once_more(whole, SETTINGS.whole_part)
            best = self._better(whole, best)
        elif longer := self.searched_on_operands(plain, SETTINGS.whole_part * self.shares.left()):
            best = self._better(longer, best)
        best = self.once_more(best)
        return replace(best, tried=tuple(self.tried), begun=begun, choices=choices)

    def run_on(self) -> VariantPlan:
        """The variants that were met for other limits and promise most, planned for this one at length; then others.

        What promises more than all of them by estimates is priced first, and is among them.
        """
        best = self._best_met()
        begun = self.choices.begun(self.graph)
        if not self.is_free(best):
            price, again = self._price_met(), set[tuple[Rewrite, ...]]()
            self._price_further(begun, price, best)
            for _ in range(Round.first().choices):
                if self.shares.left() > (Round.behind().begun if again else 0.0):
                    best = self._best_again(price, best, again)
            if self.shares.left() > Round.later().begun:
                best = self._best_of_all(begun, self.choices.after(begun), price, best, Round.later())
            if best.variant.rewrites not in again:
                best = self.once_more(best)
        return replace(best, tried=tuple(self.tried), begun=begun, choices=self.choices.after(begun))

    def _price_further(self, begun: Variant, price: Price, best: VariantPlan) -> None:
        """Price what promises more than all that was met, by estimates; few, since each takes time from plans.

        An estimate of a choice that nobody looked at may be far too low. So one that turns out to promise less does not end it.
        """
        looking = Looking(self._looked_at(begun, self.choices.after(begun)), price)
        for known in self.met.all_priced():
            looking.price = looking.price.seen(known.estimate, known.written.seconds)
        looking.looked = [seen for seen in looking.looked if self.met.priced(seen) is None]
        for _ in range(Round.first().choices):
            if not looking.looked or self.shares.left() <= Round.first().begun:
                return
            estimate = min(looking.looked, key=lambda seen: looking.price.rank(seen, self.goal))
            least = min(self._promise(one, price) for one in self.met.variants())
            if looking.price.rank(estimate, self.goal) >= least:
                return
            self._priced(looking, estimate, best)

    def _best_met(self) -> VariantPlan:
        """The best plan for this limit of those that searches for others met."""
        best = self.met.best(self.goal)
        assert best is not None
        budget = self.asked(self.plain.edited).budget
        made = best.found.program
        allowed = made.predictions.peak_with_workspace_bytes if budget.is_min else self.goal.allowed
        return replace(best, found=replace(best.found, program=replace(made, budget_bytes=allowed)))

    def _price_met(self) -> Price:
        """What recomputation costs in the graph as it is, by the plan of it that is best for this limit."""
        plain = min(self.met.of(self.plain), key=lambda found: self.goal.rank_of(found.program))
        return Price.of(self.before, planned_sequence(plain))

    def _best_again(self, price: Price, best: VariantPlan, again: set[tuple[Rewrite, ...]]) -> VariantPlan:
        """The better of a plan and of the variant that was met and promises most, planned for this limit.

        Args:
            price: of recomputation.
            best: the plan.
            again: rewrites of variants that were planned again before; those of this one are added.
        """
        # Where results lie on top of operands in one sequence follows from it: there the graph as it is stands for them.
        found = [
            one
            for one in self.met.variants()
            if one.variant.rewrites not in again
            and not (one.variant.rewrites and one.label.startswith(AS_IT_IS))
        ]
        one = min(found, key=lambda met: self._promise(met, price), default=None)
        if one is None or self._promise(one, price) >= self.goal.rank_of(best.found.program):
            return best
        again.add(one.variant.rewrites)
        share = SETTINGS.whole_part * self.shares.left() / searches_of(one.variant.graph)
        if one.variant.rewrites:
            return self._better(self.planned(one.label, one.variant, share, one.begins), best)
        return self._better(self.as_it_is(AS_IT_IS, share), best)

    def _promise(self, one: MetVariant, price: Price) -> tuple[float, ...]:
        """What recomputation would bring a variant to; lower is better.

        Within a time it goes on from the slowest of its plans that keeps it: those before say what it brought on the way.
        """
        plans = one.plans
        if (longest := self.goal.longest) is not None:
            within = tuple(made for made in plans if made.seconds <= longest)
            plans = within[-1:] or plans[:1]
        return min(price.brought(made.peak_with_workspace_bytes, made.seconds, self.goal) for made in plans)

    def _better(self, one: VariantPlan, other: VariantPlan) -> VariantPlan:
        return one if self.is_better(one, other) else other

    def run_like(self, decisions: Sequence[Decision]) -> VariantPlan:
        """The better of the graph as it is and of one variant, after what was decided for another graph."""
        best = self.as_it_is(AS_IT_IS, SETTINGS.first_share)
        if not self.is_free(best):
            begins = followed(self.choices.begun(self.graph), decisions, self.choices)
            best = self._or(best, begins, max(self.shares.left(), SETTINGS.first_share))
        return replace(best, tried=tuple(self.tried))

    def _or(self, best: VariantPlan, begins: Variant, share: float) -> VariantPlan:
        """The better of a plan and of that of another variant, whose searches together get a share of the time."""
        variant = self.finished(begins)
        if self._is_too_slow(self.in_program_order(variant).seconds, best):
            return best
        share /= searches_of(variant.graph)
        return self._better(self.planned(variant.label or MERGED, variant, share, begins), best)

    def _with_operands(self, best: VariantPlan) -> VariantPlan:
        """The better of a plan and of the same parts with operands that nothing overwrites in them.

        What was overwritten cannot run again. That keeps a plan from spending its time; only then it is worth another one.
        """
        longest, made = self.goal.longest, best.found.program.predictions
        if best.begins is None or longest is None or self.shares.left() <= SETTINGS.search_share:
            return best
        variant = self.finished(best.begins, keeps_operands=True)
        is_spent = made.seconds > longest - SETTINGS.doubt * self.before.seconds
        if is_spent or variant.rewrites == best.variant.rewrites:
            return best
        label = f"{variant.label}, with its operands kept"
        return self._better(self.planned(label, variant, SETTINGS.search_share, best.begins), best)

    def _rejoined(self, best: VariantPlan, begun: Variant) -> VariantPlan:
        """The best plan with some joins made after all: those whose time is worth more than their bytes beside the rest."""
        if all(decision.names is None for decision in best.variant.decisions):
            return best
        # What recomputation costs beside it must be known.
        best = self.once_more(best, SETTINGS.priced_part)
        plain = self.choices.begun(self.graph)
        known = joins(plain, self.choices, lambda graph: self.exact(graph).problem(graph))
        whole = self.in_program_order(self.finished(begun)).peak_with_workspace_bytes
        while self.shares.left() > Round.later().begun:
            made = self.in_program_order(best.variant)
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
        made = self.in_program_order(self.finished(variant))
        return price.brought(made.peak_with_workspace_bytes, made.seconds, self.goal)

    def _with_merges(self, begun: Variant, best: VariantPlan, price: Price) -> tuple[VariantPlan, Price]:
        """The better of a plan and of what all variants begin with, where more than means was changed; its price."""
        variant = self.finished(begun)
        if len(variant.rewrites) == len(begun.rewrites) and not begun.decisions:
            return best, price
        if not begun.labels and self._only_loses(variant):
            self.merging = False
            return best, price
        label = ", then ".join((*variant.labels, MERGED))
        made = self.planned(label, variant, SETTINGS.first_share)
        price = price.after(self.in_program_order(variant), planned_sequence(made.found))
        return self._better(made, best), price

    def _only_loses(self, variant: Variant) -> bool:
        """Whether a variant takes longer in program order, and no fewer bytes: where products are small, sums in them cost time."""
        made, before = self.in_program_order(variant), self.before
        is_lower = made.peak_with_workspace_bytes < before.peak_with_workspace_bytes
        return made.seconds > before.seconds and not is_lower

    def _best_of_all(
        self, begun: Variant, choices: Sequence[Choice], price: Price, best: VariantPlan, wanted: Round
    ) -> VariantPlan:
        """The best of a plan and of the variants that are reached from another, one choice at a time."""
        for _ in range(SETTINGS.rounds):
            found = self._best_after(begun, choices, price, best, wanted)
            if found is best or self.shares.left() <= Round.later().begun:
                return found
            assert found.begins is not None
            best, begun, wanted = found, found.begins, Round.later()
            choices = self.choices.after(begun)
            price = price.after(self.in_program_order(found.variant), planned_sequence(best.found))
        return best

    def _best_after(
        self, begun: Variant, choices: Sequence[Choice], price: Price, best: VariantPlan, wanted: Round
    ) -> VariantPlan:
        """The best of a plan and of what follows from a variant, of which those that promise most are planned."""
        looking = Looking(self._looked_at(begun, choices), price)
        while picked := self._picked(looking, best, wanted):
            for one, found in zip(picked, self._all_planned(picked, looking, wanted), strict=True):
                if found is not None and self.is_better(found, best):
                    best, looking.best = found, one.choice
        return best

    def _all_planned(
        self, picked: Sequence[Picked], looking: Looking, wanted: Round
    ) -> list[VariantPlan | None]:
        """Plans of some variants, by variant; None for those that no time was left for."""

        def may_begin(number: int) -> bool:
            # One is planned even where the graph as it is took all the time.
            is_first = wanted == Round.first() and picked[number].choice is looking.planned[0]
            return is_first or self.shares.of_time() > wanted.begun

        variants = [(one.variant, one.begins) for one in picked]
        return self.side_by_side(variants, SETTINGS.search_share, may_begin)

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
        made = self.met.priced(estimate)
        if made is None:
            begins = self.choices.taken(estimate.choice, estimate.parts)
            if begins is None:
                looking.drop(estimate.choice)
                return None
            variant = self.finished(begins)
            made = PricedVariant(estimate, begins, variant, self.in_program_order(variant))
            self.met.remember(made)
        looking.price = looking.price.seen(estimate, made.written.seconds)
        if self._is_too_slow(made.written.seconds, best):
            return None
        looking.planned.append(estimate.choice)
        return Picked(estimate.choice, made.begins, made.variant)

    def _may_pick(self, wanted: Round, looking: Looking) -> bool:
        """Whether time or work is left for one more variant; the very first is planned in any case."""
        return (wanted == Round.first() and not looking.planned) or self.shares.left() > wanted.begun

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

    def _looked_at(self, begun: Variant, choices: Sequence[Choice]) -> list[Estimate]:
        """What may follow from a variant, in every number of parts, where that promises something."""
        wanted = [choice for choice in choices if self.only(choice)]
        before = baseline(self.quick.problem(begun.graph)).peak_with_workspace_bytes
        lowest = max(before * SETTINGS.worthwhile, 1.0)
        seen = estimates(begun, wanted, self.quick, self.costs)
        return [estimate for estimate in seen if estimate.peak_bytes < lowest]

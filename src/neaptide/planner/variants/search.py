"""The outer search: which variant of a graph, planned by the inner search, answers best.

The floor is the finished plan that keeps the bits, so no answer is worse than without variants. Then one loop: price what may
follow, plan the few that promise most, go on from the best. Prices lead: what recomputation costs where nothing is split says how
far it would bring each variant. Each variant is planned with what costs nothing besides (`merges`), and the bodies of its loops by
the same search. (Two searches, one inside the other; fission and its place in the search: MAGIS, Chen et al., ASPLOS 2024.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.planner.bodies.plans import planned_sequence
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choice, Choices
from neaptide.planner.variants.estimate import Estimate, estimates
from neaptide.planner.variants.merges import followed, joins, with_one_join_more, without_joins
from neaptide.planner.variants.met import MetPlans, PricedVariant, VariantPlan
from neaptide.planner.variants.planning import (
    LEAST_SHARE,
    Floor,
    Request,
    VariantPlanning,
    VariantPrices,
    searches_of,
    share_of,
)
from neaptide.planner.variants.price import Price
from neaptide.planner.variants.processes.pool import started_pool
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.variant import Decision, Variant

IN_PLACE: Final = "in_place"
MERGED: Final = "copies made once, sums in products and results on top of operands"

_WORTHWHILE: Final = 0.95  # a region is looked at where parts bring the peak to this share of it at most
_MOST_PLANNED: Final = 12  # where nothing limits the search


def plan_variants(
    graph: Graph,
    asked: Request,
    prices: VariantPrices,
    choices: Choices,
    *,
    only: Callable[[Choice], bool] = lambda _: True,
    merging: bool = True,
    met: MetPlans | None = None,
    floor: Floor | None = None,
) -> VariantPlan:
    """Search over variants of a graph, each planned within the budget.

    Args:
        asked: what for, of each variant, with the limits of the whole search and its workers, which plan the variants of a
            batch side by side. `budget_bytes` must be given, and shares of the time are of this graph's.
        choices: what may run in parts, for this graph; what a search before this one found is not looked for again.
        merging: do what costs nothing as well, and look at convolutions of pieces.
        met: what searches for other limits met, of the same graph under the same prices. The answer is no worse than any of
            it, and what this search meets is added.
        floor: the search that keeps the bits; by default that for a schedule of the graph as it is.

    Returns:
        The best plan found, checked; the graph as it is where no variant is better.
    """
    search = _Search(graph, asked, prices, choices, only=only, merging=merging, met=met or MetPlans())
    return _above(search, floor, search.run)


def plan_alike(
    graph: Graph,
    asked: Request,
    prices: VariantPrices,
    choices: Choices,
    decisions: Sequence[Decision],
    floor: Floor,
    *,
    merging: bool,
) -> VariantPlan:
    """The plan of a graph after what was decided for one that is much like it; nothing else is looked at."""
    search = _Search(graph, asked, prices, choices, only=lambda _: True, merging=merging, met=MetPlans())
    return _above(search, floor, lambda best: search.run_like(best, decisions))


def _above(search: _Search, floor: Floor | None, run: Callable[[VariantPlan], VariantPlan]) -> VariantPlan:
    """What a search finds beyond its floor."""
    try:
        best = search.floor(floor)
        if not search.is_free(best):
            best = run(best)
        return search.finish(replace(best, tried=tuple(search.tried)))
    finally:
        search.close()


_Rank = tuple[float, ...]
_Measure = Callable[[Estimate | PricedVariant, Price], _Rank | None]


@dataclass(slots=True)
class _Open:
    """What may follow from one variant and was not taken up yet, and what recomputation costs beside it."""

    price: Price
    offers: list[Estimate | PricedVariant]


class _Search(VariantPlanning):
    def __init__(
        self,
        graph: Graph,
        asked: Request,
        prices: VariantPrices,
        choices: Choices,
        *,
        only: Callable[[Choice], bool],
        merging: bool,
        met: MetPlans,
    ) -> None:
        super().__init__(graph, asked, prices, choices, merging=merging, met=met)
        self.quick, self.only, self.costs = prices.quick, only, prices.costs
        self._open: list[_Open] = []
        self._sure: list[PricedVariant] = []  # planned before anything else
        self._waiting: list[Variant] = []  # looked at where nothing else is left
        self._planned: list[Choice] = []
        self._others: list[VariantPlan] = []  # beside the floor

    def run(self, floor: VariantPlan) -> VariantPlan:
        """The best of the floor and of what the loop meets."""
        self.pool = started_pool(self.workers, SETTINGS.batch, self.quick, self.floor_seconds, self.interrupt)
        best, price = self._best_met(floor), self._price_of(self.before, floor)
        known = [one for one in self.met.variants() if one.variant.rewrites != floor.variant.rewrites]
        if known:
            self._open.append(_Open(price, [*known]))
        begun, *self._waiting = self._beginnings(floor, are_planned=bool(known))
        if self._others and self.is_better(self._others[0], best):
            best = self._others[0]
            price = price.after(self.in_program_order(best.variant), planned_sequence(best.found))
            self._sure += self._beside(best, begun)
        choices = self._follow(begun, price)
        # Beside what promises most, the whole step and what is best in program order are planned in any case: nobody who splits
        # by hand, or splits first and plans then, shall be better off because an estimate was wrong.
        picked = self._picked(best, price, (self._promised, self._of_whole_step, self._in_program_order), 1)
        while picked:
            found = self.side_by_side(picked)
            winner = min((one for one in found if one is not None), key=self.rank, default=None)
            self._others += [one for one in found if one is not None]
            if winner is not None and self.is_better(winner, best):
                best = winner
                price = price.after(self.in_program_order(best.variant), planned_sequence(best.found))
                self._go_on(best, picked[found.index(winner)].choice, price, begun)
            picked = self._picked(best, price, (self._promised,) * SETTINGS.batch, 0)
        return replace(self._once_more(best, floor), begun=begun, choices=tuple(choices))

    def run_like(self, best: VariantPlan, decisions: Sequence[Decision]) -> VariantPlan:
        """The better of the floor and of one variant, after what was decided for another graph."""
        one = self.priced(followed(self.choices.begun(self.graph), decisions, self.choices))
        if self._is_too_slow(one, best):
            return best
        share = max(self.left(), SETTINGS.free_share) / searches_of(one.variant)
        return min(best, self.planned(one, share, one.label or MERGED), key=self.rank)

    def _best_met(self, floor: VariantPlan) -> VariantPlan:
        """The better of the floor and of what searches for other limits met."""
        best = self.met.best(self.goal)
        if best is None or not self.is_better(best, floor):
            return floor
        made = best.found.program
        is_min = self.asked(self.plain.edited).budget.is_min
        allowed = made.predictions.peak_with_workspace_bytes if is_min else self.goal.allowed
        return replace(best, found=replace(best.found, program=replace(made, budget_bytes=allowed)))

    def _price_of(self, before: PlannedSequence, plan: VariantPlan) -> Price:
        return Price.of(before, planned_sequence(plan.found), self.persistent_bytes)

    def _beginnings(self, floor: VariantPlan, *, are_planned: bool) -> list[Variant]:
        """What the first choices may follow from: with joins in front of convolutions and without, the better one first.

        Each is planned with all that costs nothing, where that is more than the floor has. What only loses is left from then on:
        where products are small, sums in them cost time.
        """
        begun = self.choices.begun(self.graph)
        apart = without_joins(begun, self.choices) if self.merging else begun
        beginnings = [begun] if len(apart.rewrites) == len(begun.rewrites) else [begun, apart]
        ranks = {}
        for one in beginnings:
            plan = floor if are_planned else self._with_what_is_free(one)
            ranks[id(one)] = self.rank(plan or floor)
        self._others.sort(key=self.rank)
        return sorted(beginnings, key=lambda one: ranks[id(one)])

    def _with_what_is_free(self, begun: Variant) -> VariantPlan | None:
        """The plan of the graph with all that costs nothing; None where that is what the floor has, or only loses."""
        begun = self.choices.without_parts(begun)
        one = self.priced(begun)
        rules = {rewrite.rule for rewrite in one.variant.rewrites[len(begun.rewrites) :]}
        if not begun.decisions and rules <= {IN_PLACE}:
            return None
        if not begun.labels and one.plans[0].only_loses(self.before):
            self.merging = False
            return None
        made = self.planned(one, SETTINGS.free_share, ", then ".join((*begun.labels, MERGED)))
        self._others.append(made)
        return made

    def _follow(self, begun: Variant, price: Price) -> Sequence[Choice]:
        """Estimate what may follow from a variant."""
        choices = self.choices.after(begun)
        before = baseline(self.quick.problem(begun.graph)).peak_with_workspace_bytes
        seen = estimates(begun, filter(self.only, choices), self.quick, self.costs)
        for known in self.met.all_priced():
            if any(known.choice is choice for choice in choices):
                assert known.estimate is not None
                price = price.seen(known.estimate, known.plans[0].seconds)
        lower = [one for one in seen if one.peak_bytes < max(before * _WORTHWHILE, 1.0)]
        self._open.append(_Open(price, [one for one in lower if self.met.priced(one) is None]))
        return choices

    def _go_on(self, best: VariantPlan, choice: Choice | None, price: Price, begun: Variant) -> None:
        """Look at what follows from the best plan, and at what is beside it."""
        # Of the choices that were planned, the best alone is looked at in other numbers of parts.
        self._planned = [one for one in self._planned if one is not choice]
        if self.left() <= SETTINGS.reserve:
            return
        self._sure += self._beside(best, begun)
        if best.begins is not None and best.begins.graph is not begun.graph:
            self._follow(best.begins, price)

    def _beside(self, best: VariantPlan, begun: Variant) -> Iterator[PricedVariant]:
        """Variants that differ from that of a plan in little: with operands that nothing overwrites, with one join more."""
        longest, made = self.goal.longest, best.found.program.predictions
        if best.begins is None or longest is None:
            return
        # What is overwritten in a part cannot run again. That keeps a plan from spending its time.
        if made.seconds <= longest - SETTINGS.doubt * self.before.seconds:
            one = self.priced(best.begins, keeps_operands=True)
            if one.variant.rewrites != best.variant.rewrites:
                yield replace(one, name=f"{one.label}, with its operands kept")
        decisions = best.variant.decisions
        if all(decision.names is None for decision in decisions):
            return
        plain = self.choices.begun(self.graph)
        known = joins(plain, self.choices, lambda graph: self.exact(graph).problem(graph))
        written = self.priced(begun).plans[0].peak_with_workspace_bytes
        price = self._price_of(self.in_program_order(best.variant), best)
        # In parts a join takes about as much less as everything does.
        more = with_one_join_more(
            decisions, known, price.share_per_second, max(written - self.persistent_bytes, 1)
        )
        if more is not None:
            one = self.priced(followed(plain, more, self.choices))
            if not self._is_too_slow(one, best):
                yield replace(one, name=one.label or MERGED)

    def _picked(
        self, best: VariantPlan, price: Price, measures: Sequence[_Measure], sure: int
    ) -> list[PricedVariant]:
        """What is planned next, none of it in the light of another's plan: the first by each measure, while time is left.

        The first `sure` are picked even where the floor took all the time; and where there are any, nothing need promise more
        than the best plan.
        """
        picked: list[PricedVariant] = []
        for measure in measures:
            if len(self._others) + len(picked) >= _MOST_PLANNED:
                break
            if len(picked) >= sure and self.left() <= SETTINGS.reserve:
                break
            least = None if sure else self.rank(best)
            one = self._next(measure, best, price, least) or self._next(self._promised, best, price, least)
            if one is None:
                break
            picked.append(one)
            self.spend(share_of(one.variant), one.variant)
            if one.choice is not None:
                self._planned.append(one.choice)
        return picked

    def _next(
        self, measure: _Measure, best: VariantPlan, price: Price, least: _Rank | None
    ) -> PricedVariant | None:
        """The first variant by a measure, priced; None where none promises more than `least`."""
        if self._sure:
            return self._sure.pop(0)
        while True:
            ranked = [
                (rank, here, offer)
                for here in self._open
                for offer in here.offers
                if self._is_open(offer.choice) and (rank := measure(offer, here.price)) is not None
            ]
            first = min(ranked, key=lambda one: one[0], default=None)
            if first is None or self._is_hopeless(*first, least):
                if measure != self._promised or not self._waiting or self.left() <= SETTINGS.reserve:
                    return None
                self._follow(self._waiting.pop(0), price)
                continue
            _, here, offer = first
            here.offers = [one for one in here.offers if one is not offer]
            one = offer if isinstance(offer, PricedVariant) else self._made(offer, here)
            if one is not None and not self._is_too_slow(one, best):
                return one

    def _is_hopeless(
        self, rank: _Rank, here: _Open, offer: Estimate | PricedVariant, least: _Rank | None
    ) -> bool:
        """Whether the first of all offers is none: it promises less than there is, or takes too long as far as is known."""
        is_known = isinstance(offer, PricedVariant) or bool(here.price.priced)
        is_too_long = self.goal.longest is not None and is_known and rank[0] > 0
        return is_too_long or (least is not None and rank >= least)

    def _is_open(self, choice: Choice | None) -> bool:
        return choice is None or not any(choice is one for one in self._planned)

    def _promised(self, offer: Estimate | PricedVariant, price: Price) -> _Rank:
        """What recomputation would bring a variant to; lower is better.

        Of one that was planned it goes on from the slowest of its plans that keeps the time: those before say what recomputation
        brought on the way.
        """
        if isinstance(offer, Estimate):
            return price.rank(offer, self.goal)
        plans = offer.plans
        if (longest := self.goal.longest) is not None:
            within = tuple(made for made in plans if made.seconds <= longest)
            plans = within[-1:] or plans[:1]
        return min(price.brought(made.peak_with_workspace_bytes, made.seconds, self.goal) for made in plans)

    def _of_whole_step(self, offer: Estimate | PricedVariant, price: Price) -> _Rank | None:
        """The same of the whole step in parts alone."""
        is_whole = offer.choice is not None and offer.choice.is_whole_step
        return self._promised(offer, price) if is_whole else None

    def _in_program_order(self, offer: Estimate | PricedVariant, price: Price) -> _Rank | None:
        """What a variant comes to without recomputation."""
        if isinstance(offer, PricedVariant):
            return None
        return self.goal.rank(int(offer.peak_bytes), price.seconds_of(offer))

    def _made(self, estimate: Estimate, here: _Open) -> PricedVariant | None:
        """A variant of which an estimate was made, priced exactly; None where it cannot be."""
        begins = self.choices.taken(estimate.choice, estimate.parts)
        if begins is None:
            here.offers = [one for one in here.offers if one.choice is not estimate.choice]
            return None
        made = replace(self.priced(begins), estimate=estimate)
        self.met.remember(made)
        here.price = here.price.seen(estimate, made.plans[0].seconds)
        return made

    def _is_too_slow(self, one: PricedVariant, best: VariantPlan) -> bool:
        """Whether a variant cannot be the answer for what it takes before anything is recomputed."""
        seconds = one.plans[0].seconds
        if self.goal.longest is not None:
            return seconds > self.goal.longest
        made = best.found.program.predictions
        return made.peak_with_workspace_bytes <= self.goal.allowed and seconds >= made.seconds

    def _once_more(self, best: VariantPlan, floor: VariantPlan) -> VariantPlan:
        """What is left goes to the best variant beside the floor, which had all that it could use."""
        other = min(self._others, key=self.rank, default=None) if best is floor else best
        if other is None or self.is_unlimited:
            return best
        share = self.left() / searches_of(other.variant)
        if share <= LEAST_SHARE:
            return best
        one = PricedVariant(other.variant, other.begins, (), name=f"{other.label}, searched longer")
        longer = self.planned(one, share)
        return (
            replace(best if other is best else other, found=longer.found)
            if self.is_better(longer, best)
            else best
        )

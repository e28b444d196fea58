"""Choices behind a variant: ranked by estimates, priced in program order, the few that promise most planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neaptide.ir.graph import Graph
from neaptide.planner.loop_bodies import planned_sequence
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choice, Choices
from neaptide.planner.variants.estimate import Estimate, estimates
from neaptide.planner.variants.met import MetPlans, PricedVariant
from neaptide.planner.variants.planning import Request, VariantPlanning, VariantPrices
from neaptide.planner.variants.price import Price
from neaptide.planner.variants.rounds import Looking, Picked, Round
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.shares import searches_of
from neaptide.planner.variants.variant import Variant
from neaptide.planner.variants.variant_plan import VariantPlan


class VariantChoosing(VariantPlanning):
    """Plans what may follow from a variant, one choice at a time. Arguments as of `VariantPlanning`, and:

    Args:
        prices: of variants.
        only: what may be chosen.
    """

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
        super().__init__(graph, asked, prices.exact, choices, merging=merging, met=met)
        self.quick, self.only, self.costs = prices.quick, only, prices.costs
        self._before: list[Estimate] = []  # of what was picked

    def better(self, one: VariantPlan, other: VariantPlan) -> VariantPlan:
        """The one of two plans that is closer to what is asked for."""
        return one if self.is_better(one, other) else other

    def best_of_all(
        self, begun: Variant, choices: Sequence[Choice], price: Price, best: VariantPlan, wanted: Round
    ) -> VariantPlan:
        """The best of a plan and of the variants that are reached from another, one choice at a time."""
        for _ in range(SETTINGS.rounds):
            found = self.best_after(begun, choices, price, best, wanted)
            if found is best or self.shares.left() <= Round.later().begun:
                return found
            assert found.begins is not None
            best, begun, wanted = found, found.begins, Round.later()
            choices = self.choices.after(begun)
            price = price.after(self.in_program_order(found.variant), planned_sequence(best.found))
        return best

    def best_after(
        self, begun: Variant, choices: Sequence[Choice], price: Price, best: VariantPlan, wanted: Round
    ) -> VariantPlan:
        """The best of a plan and of what follows from a variant, of which those that promise most are planned."""
        looking = Looking([one for one in self.looked_at(begun, choices) if self._is_new(one)], price)
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
            is_first = wanted.plans_one and picked[number].choice is looking.planned[0]
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
            if one := self.priced(looking, estimate, best):
                picked.append(one)
                self._before.append(estimate)
                self.shares.spend(SETTINGS.search_share * searches_of(one.variant.graph))
        return picked

    def priced(self, looking: Looking, estimate: Estimate, best: VariantPlan) -> Picked | None:
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
        if self.is_too_slow(made.written.seconds, best):
            return None
        looking.planned.append(estimate.choice)
        return Picked(estimate.choice, made.begins, made.variant)

    def _is_new(self, estimate: Estimate) -> bool:
        """Whether a choice was not picked before in that number of parts."""
        same = (one for one in self._before if one.choice is estimate.choice)
        return all(one.parts != estimate.parts for one in same)

    def _may_pick(self, wanted: Round, looking: Looking) -> bool:
        """Whether time or work is left for one more variant; the very first is planned in any case."""
        return (wanted.plans_one and not looking.planned) or self.shares.left() > wanted.begun

    def is_too_slow(self, seconds: float, best: VariantPlan) -> bool:
        """Whether a variant cannot be the answer for what it takes before anything is recomputed."""
        if self.goal.longest is not None:
            return seconds > self.goal.longest
        made = best.found.program.predictions
        return made.peak_with_workspace_bytes <= self.goal.allowed and seconds >= made.seconds

    def looked_at(self, begun: Variant, choices: Sequence[Choice]) -> list[Estimate]:
        """What may follow from a variant, in every number of parts, where that promises something."""
        wanted = [choice for choice in choices if self.only(choice)]
        before = baseline(self.quick.problem(begun.graph)).peak_with_workspace_bytes
        lowest = max(before * SETTINGS.worthwhile, 1.0)
        seen = estimates(begun, wanted, self.quick, self.costs)
        return [estimate for estimate in seen if estimate.peak_bytes < lowest]

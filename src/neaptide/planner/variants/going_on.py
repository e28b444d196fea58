"""The search for one limit behind those for others: what they met is planned on, and little is looked for anew."""

from __future__ import annotations

from dataclasses import replace

from neaptide.planner.loop_bodies import planned_sequence
from neaptide.planner.variants.choosing import VariantChoosing
from neaptide.planner.variants.met import MetVariant
from neaptide.planner.variants.planning import AS_IT_IS
from neaptide.planner.variants.price import Price
from neaptide.planner.variants.rounds import Looking, Round
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.shares import searches_of
from neaptide.planner.variants.variant import Variant
from neaptide.planner.variants.variant_plan import VariantPlan
from neaptide.transform.rewrite import Rewrite


class GoingOn(VariantChoosing):
    """A search that begins with what searches for other limits met."""

    def run(self) -> VariantPlan:
        """The variants that were met for other limits and promise most, planned for this one at length; then others.

        What promises more than all of them by estimates is priced first, and so is the whole step: they are among them.
        """
        best = self._best_met()
        begun = self.choices.begun(self.graph)
        if not self.is_free(best):
            price, again = self._price_met(), set[tuple[Rewrite, ...]]()
            looking = self._looking(begun, price)
            self._price_whole(looking, best)
            self._price_further(looking, price, best)
            for _ in range(Round.first().choices):
                if self.shares.left() > (Round.behind().begun if again else 0.0):
                    best = self._best_again(price, best, again)
            if self.shares.left() > Round.later().begun:
                best = self.best_of_all(begun, self.choices.after(begun), price, best, Round.later())
            if best.variant.rewrites not in again:
                best = self.once_more(best)
        return replace(best, tried=tuple(self.tried), begun=begun, choices=self.choices.after(begun))

    def _looking(self, begun: Variant, price: Price) -> Looking:
        """At what may follow, with what all that was priced says of it."""
        looking = Looking(self.looked_at(begun, self.choices.after(begun)), price)
        for known in self.met.all_priced():
            looking.price = looking.price.seen(known.estimate, known.written.seconds)
        return looking

    def _price_whole(self, looking: Looking, best: VariantPlan) -> None:
        """Price the whole step in the number of parts that promises most, whatever its estimate is beside those of others.

        That is what a user does by hand. No plan may be above it because an estimate was wrong.
        """
        wholes = (seen for seen in looking.looked if seen.choice.is_whole_step)
        found = min(wholes, key=lambda seen: looking.price.rank(seen, self.goal), default=None)
        if found is not None and self.met.priced(found) is None and self.shares.left() > Round.first().begun:
            self.priced(looking, found, best)

    def _price_further(self, looking: Looking, price: Price, best: VariantPlan) -> None:
        """Price what promises more than all that was met, by estimates; few, since each takes time from plans.

        An estimate of a choice that nobody looked at may be far too low. So one that turns out to promise less does not end it.
        """
        looking.looked = [seen for seen in looking.looked if self.met.priced(seen) is None]
        for _ in range(Round.first().choices):
            if not looking.looked or self.shares.left() <= Round.first().begun:
                return
            estimate = min(looking.looked, key=lambda seen: looking.price.rank(seen, self.goal))
            least = min(self._promise(one, price) for one in self.met.variants())
            if looking.price.rank(estimate, self.goal) >= least:
                return
            self.priced(looking, estimate, best)

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
        return Price.of(self.before, planned_sequence(plain), self.resident_bytes)

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
            return self.better(self.planned(one.label, one.variant, share, one.begins), best)
        return self.better(self.as_it_is(AS_IT_IS, share), best)

    def _promise(self, one: MetVariant, price: Price) -> tuple[float, ...]:
        """What recomputation would bring a variant to; lower is better.

        Within a time it goes on from the slowest of its plans that keeps it: those before say what it brought on the way.
        """
        plans = one.plans
        if (longest := self.goal.longest) is not None:
            within = tuple(made for made in plans if made.seconds <= longest)
            plans = within[-1:] or plans[:1]
        return min(price.brought(made.peak_with_workspace_bytes, made.seconds, self.goal) for made in plans)

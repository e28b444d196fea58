"""The outer search: which variant of a graph, planned by the inner search, answers best.

Prices lead. What recomputation costs in the graph as it is says how far it would bring each variant; the few that would
come furthest are measured and planned exactly, their loops' bodies by the same search under what is left of the budget.
The graph as it is stands among them, so no answer is worse than without variants. What costs nothing is done to all others:
copies of copies are made once, sums go into products and results on top of operands. That takes bytes and buys time for
recomputation. A search that is late, as in a long graph, plans the whole step in parts before it looks for other regions. (Two searches, one inside the other; fission and its place in the search: MAGIS, Chen et al., ASPLOS 2024.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from neaptide.ir.graph import Graph
from neaptide.outcome import Stopwatch
from neaptide.planner.loop_bodies import planned_sequence
from neaptide.planner.plan_graph import GraphPlan
from neaptide.planner.rewrite_cost import rewrite_cost
from neaptide.planner.variants.choices import Choice, Choices
from neaptide.planner.variants.choosing import VariantChoosing
from neaptide.planner.variants.following import followed
from neaptide.planner.variants.going_on import GoingOn
from neaptide.planner.variants.joins import joins, with_one_join_more, without_joins
from neaptide.planner.variants.met import MetPlans
from neaptide.planner.variants.planning import AS_IT_IS, MERGED, Request, VariantPrices
from neaptide.planner.variants.price import Price
from neaptide.planner.variants.processes.pool import started_pool
from neaptide.planner.variants.rounds import Round
from neaptide.planner.variants.settings import SETTINGS
from neaptide.planner.variants.shares import searches_of
from neaptide.planner.variants.variant import Decision, Variant
from neaptide.planner.variants.variant_plan import VariantPlan


def plan_variants(
    graph: Graph,
    asked: Request,
    prices: VariantPrices,
    choices: Choices,
    *,
    only: Callable[[Choice], bool] = lambda _: True,
    merging: bool = True,
    like: Sequence[Decision] | None = None,
    met: MetPlans | None = None,
) -> VariantPlan:
    """Search over variants of a graph, each planned within the budget.

    Args:
        graph: as captured.
        asked: what for, of each variant, with the limits of the whole search and its workers, which plan the variants of a
            round side by side. `budget_bytes` must be given, and shares of the time are of this graph's.
        prices: of variants.
        choices: what may run in parts, for this graph; what a search before this one found is not looked for again.
        only: what may be chosen; all by default.
        merging: do what costs nothing as well, and look at convolutions of pieces.
        like: what was decided for a graph that is much like this one: then nothing else is looked at.
        met: what searches for other limits met, of the same graph under the same prices. The answer is no worse than any of
            it. Its variants are planned first, and what this search meets is added.

    Returns:
        The best plan found, judged; the graph as it is where no variant is better.
    """
    kept = met or MetPlans()
    kind = GoingOn if kept.of(Variant.captured(graph)) and like is None else _FirstSearch
    search = kind(graph, asked, prices, choices, only=only, merging=merging, met=kept)
    try:
        if isinstance(search, GoingOn):
            return search.finish(search.run())
        return search.finish(search.run() if like is None else search.run_like(like))
    finally:
        search.close()


class _FirstSearch(VariantChoosing):
    """The search for the first limit."""

    def run(self) -> VariantPlan:
        watch = Stopwatch()
        best = self.as_it_is(AS_IT_IS, SETTINGS.first_share)
        plain = best.found
        if self.is_free(best):
            return replace(best, tried=tuple(self.tried))
        # They load while what all variants begin with is planned.
        self.pool = started_pool(
            self.workers, Round.first().choices, self.quick, watch.seconds(), self.interrupt
        )
        price = Price.of(self.before, planned_sequence(plain), self.resident_bytes)
        looking = Stopwatch()
        begun, *others = self._beginnings(price)
        if not self._may_look(begun, looking.seconds()):
            return replace(self.longer_as_it_is(best, SETTINGS.whole_part), tried=tuple(self.tried))
        is_late, free = self._is_late(), self._free(begun)
        whole, choices = best, self.choices.whole(begun) if is_late else ()
        if is_late:
            # Of all that may be planned, the whole step in parts is found soonest, and seldom far from the best.
            best = self.best_after(begun, choices, price, best, Round.late())
        has_parts = best is not whole
        if not has_parts and free is not None:
            best, price = self._with_merges(free, best, price)
            whole = best
        wanted = Round.later() if has_parts else Round.first()
        if not has_parts or self.shares.left() > wanted.begun:
            choices = self.choices.after(begun)
            best = self.best_of_all(begun, choices, price, best, wanted)
        for other in others:
            best = self.best_after(other, self.choices.after(other), price, best, Round.behind())
        best = self._with_operands(best)
        best = self._rejoined(best, begun)
        if self._is_far_ahead(best, whole):
            best = self.best_after(begun, choices, price, best, Round.behind())
        elif not has_parts:
            best = self.better(self._longer_without_parts(whole, best, plain), best)
        best = self.once_more(best)
        return replace(best, tried=tuple(self.tried), begun=begun, choices=choices)

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
        if self.is_too_slow(self.in_program_order(variant).seconds, best):
            return best
        share /= searches_of(variant.graph)
        return self.better(self.planned(variant.label or MERGED, variant, share, begins), best)

    def _longer_without_parts(self, whole: VariantPlan, best: VariantPlan, plain: GraphPlan) -> VariantPlan:
        """A variant without parts, searched for longer: it had less time than what recomputation alone takes to get low.

        Args:
            whole: the best without parts.
            best: of all; where it is that one, it is searched for longer in the end, and another one is here.
            plain: the plan of the graph as it is.
        """
        is_merged = whole is not best and not whole.label.startswith(AS_IT_IS)
        if is_merged or not self.may_lie_on_operands:
            return self.once_more(whole, SETTINGS.whole_part)
        return self.searched_on_operands(plain, SETTINGS.whole_part * self.shares.left()) or whole

    def _is_far_ahead(self, best: VariantPlan, whole: VariantPlan) -> bool:
        """Whether a variant, with nothing recomputed, is lower than recomputation got another one within the same time."""
        recomputed = whole.found.program.predictions.peak_with_workspace_bytes
        written = self.in_program_order(best.variant).peak_with_workspace_bytes
        return self.goal.longest is not None and written < recomputed

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
        return self.better(self.planned(label, variant, SETTINGS.search_share, best.begins), best)

    def _rejoined(self, best: VariantPlan, begun: Variant) -> VariantPlan:
        """The best plan with some joins made after all: those whose time is worth more than their bytes beside the rest."""
        if all(decision.names is None for decision in best.variant.decisions):
            return best
        # What recomputation costs beside it must be known.
        best = self.once_more(best, SETTINGS.priced_part)
        plain = self.choices.begun(self.graph)
        known = joins(plain, self.choices, lambda graph: self.exact(graph).problem(graph))
        written = self.in_program_order(self.finished(begun))
        whole = max(written.peak_with_workspace_bytes - self.resident_bytes, 1)
        while self.shares.left() > Round.later().begun:
            made = self.in_program_order(best.variant)
            price = Price.of(made, planned_sequence(best.found), self.resident_bytes)
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

    def _free(self, begun: Variant) -> Variant | None:
        """What all variants begin with after all that costs nothing; None where that is nothing, or only loses: then it is left."""
        begun = self.choices.without_parts(begun)
        variant = self.finished(begun)
        if len(variant.rewrites) == len(begun.rewrites) and not begun.decisions:
            return None
        # Where products are small, sums in them cost time.
        cost = rewrite_cost(self.before, self.in_program_order(variant))
        if not begun.labels and cost.only_loses:
            self.merging = False
            return None
        return variant

    def _with_merges(self, free: Variant, best: VariantPlan, price: Price) -> tuple[VariantPlan, Price]:
        """The better of a plan and of that of `_free`; its price."""
        made = self.planned(", then ".join((*free.labels, MERGED)), free, SETTINGS.first_share)
        price = price.after(self.in_program_order(free), planned_sequence(made.found))
        return self.better(made, best), price

    def _is_late(self) -> bool:
        """Whether what every search begins with took longer than its share, as it does where a graph is long for the limit.

        Under a limit of work, or none, it never does.
        """
        return self.shares.of_time() < 1.0 - SETTINGS.first_share - SETTINGS.search_share

    def _may_look(self, begun: Variant, took_s: float) -> bool:
        """Whether finding what may follow leaves time to plan it; it takes as long as finding what stands in its way."""
        if self.shares.limits.time_s is None or self.choices.knows(begun):
            return True
        return self.shares.of_time() - took_s / self.shares.limits.time_s > SETTINGS.search_share

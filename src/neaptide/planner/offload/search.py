"""Stays on the host chosen together with recomputations, by prices of every moment, then one exact change at a time.

Plans by recomputation alone are the start: their recomputations are exchanged for stays. Their repetitions and the gaps of
their order are the columns of one linear program, which grows by repetitions that pay at its prices and by ways of being away that placements have found. Each
answer is rounded and carried out exactly. Small steps that are chains have the answers of a chain program beside these.
Then recomputations and stays of the best plans are exchanged, one at a time, wherever that is faster and fits.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

from neaptide.linear.arrays import Floats
from neaptide.linear.tolerances import HALF
from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.offload.bound import offload_bound
from neaptide.planner.offload.carried import Carried, OffloadPlan, gaps_like
from neaptide.planner.offload.chain_stays import chain_plans
from neaptide.planner.offload.columns import StayColumns, StayProgram
from neaptide.planner.offload.exchanges import descend
from neaptide.planner.offload.gap_table import GapTable
from neaptide.planner.offload.gaps import GapKey, IdleGap
from neaptide.planner.offload.problem import OffloadProblem
from neaptide.planner.offload.settings import SETTINGS as STAYS
from neaptide.planner.recompute.pool.pool import Item, RepetitionPool
from neaptide.planner.recompute.pool.prices import RepetitionPrices
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.recompute.units import stage_units
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.instances import AWAY
from neaptide.schedule.timeline import OffloadClock

NAME: Final = "offload"

_Rounded: TypeAlias = tuple[tuple[Item, ...], tuple[GapKey, ...]]


def choose_stays(
    problem: OffloadProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[OffloadPlan]:
    """The fastest plan found within a budget with stays on the host; never worse than those that are known.

    O(rounds x one sparse linear program with a few variables for each repetition and gap, then exchanges x (positions +
    stays x positions in their gaps)).

    Args:
        problem: the step, its budget, the host and what is known.
        limits: of the search.
        interrupt: set it to stop.
    """
    guard = LimitGuard(limits, interrupt)
    step, budget_bytes = problem.step, problem.budget_bytes
    bound = None
    best = problem.best_known()
    is_free = best.planned.peak_with_workspace_bytes <= budget_bytes
    if step.node_count and not (is_free and len(best.planned.sequence) == step.node_count):
        search = _Search(problem, guard)
        least = step.baseline_seconds
        if not problem.host.between:
            least = offload_bound(step, budget_bytes, problem.host, search.order, time_s=guard.remaining_s())
        margin = SETTINGS.contradiction * step.baseline_seconds
        if problem.longest is None or not (least == math.inf or least > problem.longest + margin):
            search.run(least + SETTINGS.close_enough * step.baseline_seconds)
        best = search.best
        is_contradicted = least > best.planned.seconds + margin
        if best.planned.peak_with_workspace_bytes <= budget_bytes and not is_contradicted:
            bound = min(least, best.planned.seconds)
    detail = "the bound holds for this order of first executions"
    return guard.finish(best, best=best.planned.seconds, bound=bound, detail=detail if bound else "")


class _Search:
    def __init__(self, problem: OffloadProblem, guard: LimitGuard) -> None:
        self.step, self.budget, self.host = problem.step, problem.budget_bytes, problem.host
        self.known, self.guard = problem.known, guard
        self.may_recompute = problem.may_recompute
        self.best = problem.best_known()
        self.starts: list[Carried] = []
        self.enough_seconds = -math.inf if problem.longest is None else problem.longest
        self.order = problem.order
        self.units = stage_units(self.step, self.order)
        self.gaps = GapTable(Evaluator(self.step, self.order), self.host)

    def run(self, enough_seconds: float) -> None:
        """Each way in turn, until nothing is left to win.

        Args:
            enough_seconds: a plan within the budget that takes no longer need not be improved.
        """
        self.enough_seconds = max(self.enough_seconds, enough_seconds)
        for part in (self.by_stays_alone, self.from_known, self.by_prices, self.by_chain, self.by_exchanges):
            if not self.is_enough():
                part()

    def is_enough(self) -> bool:
        """Whether the best plan is within the budget and cannot be faster by an amount that matters."""
        found = self.best.planned
        return found.peak_with_workspace_bytes <= self.budget and found.seconds <= self.enough_seconds

    def by_stays_alone(self) -> None:
        """The order without recomputations, with gaps filled until it fits."""
        carried = self._start(self.order)
        if carried.fill_until_within(self.guard):
            carried.drop_needless()
            self._place(carried)
            self.starts.append(carried)
            self._take(carried)

    def _start(self, sequence: Sequence[int]) -> Carried:
        """A sequence with these first executions, without stays."""
        evaluator = Evaluator(self.step, sequence)
        return Carried(evaluator, self.host, self.budget, gaps=self.gaps.like(evaluator))

    def by_chain(self) -> None:
        """Answers of the chain program, for steps that are so small that it takes no longer than the rest."""
        if self.may_recompute and self.step.node_count <= STAYS.chain_nodes:
            problem = PlanningProblem(self.step, self.budget, start=self.order)
            for carried in chain_plans(problem, self.host, self.guard):
                self.starts.append(carried)
                self._take(carried)

    def by_prices(self) -> None:
        """Answers of the linear program, carried out."""
        evaluator = self.gaps.evaluator
        clock = OffloadClock.of(evaluator, self.host.out, self.host.back)
        columns = StayColumns(
            self._wanted(evaluator, clock), clock, self._slowest() - self.step.baseline_seconds
        )
        program = StayProgram(self.budget, self.step.baseline_seconds, columns)
        items: set[Item] = set().union(*(self.units.items_of(plan.sequence) for plan in self.known))
        rounded: set[_Rounded] = set()
        pool = RepetitionPool(self.units, items)
        uses = [*STAYS.uses]
        while uses:
            program.use = uses.pop(0)
            if self.guard.exhausted(STAYS.tries) or self.is_enough():
                return
            if len(pool.items) < len(items):
                pool = RepetitionPool(self.units, items)
            answer = program.relax(pool, self.guard.remaining_s())
            if answer is None:
                return
            new: set[Item] = set()
            if self.may_recompute:
                new = set(RepetitionPrices(pool, answer).missing(STAYS.new_items)) - items
            items |= new
            if self.step.baseline_seconds + program.seconds(pool, answer) >= self._slowest():
                if not new:
                    # Engines that may be less busy only make it slower.
                    return
                continue
            chosen = self._rounded(pool, answer.values, columns, program.shares(pool, answer.values))
            if chosen in rounded:
                # Little more room for waiting changes nothing, so the most is next.
                del uses[:-1]
                continue
            rounded.add(chosen)
            carried = self._carried(chosen)
            self.starts.append(carried)
            self._take(carried)
            self._ways_found(carried, columns)
            if not carried.placed().times.waits and not new:
                return

    def from_known(self) -> None:
        """Stays for recomputations in the plans that are known: quick, and where copies hide often all that there is to win."""
        self._exchange(self._start(plan.sequence) for plan in self.known)

    def by_exchanges(self) -> None:
        """Recomputations and stays of plans so far against each other."""
        self._exchange(self._different_starts())

    def _exchange(self, starts: Iterable[Carried]) -> None:
        """Descend from some plans, those that are within the budget."""
        most = max(STAYS.most_swaps * STAYS.nodes // max(self.step.node_count, 1), STAYS.most_swaps // 2)
        tries = LimitGuard(Limits(work=most))
        for carried in starts:
            if carried.is_within() and not self.is_enough():
                descend(carried, self.guard, tries)
                carried.drop_needless()
                self._take(carried)

    def _different_starts(self) -> list[Carried]:
        """The plans so far that are no slower than those that are known, the fastest first."""
        without = [plan for plan in self.known if plan.peak_with_workspace_bytes <= self.budget]
        slowest = min((plan.seconds for plan in without), default=math.inf)
        found: dict[object, Carried] = {}
        for carried in sorted(self.starts, key=Carried.seconds):
            if carried.seconds() <= slowest:
                found.setdefault((carried.evaluator.sequence(), carried.placed().places), carried)
        return [*found.values()][: STAYS.most_starts]

    def _place(self, carried: Carried) -> float:
        """Place a plan, not with much care where it is far behind the best; its seconds."""
        carried.place(most_seconds=self._slowest())
        return carried.seconds()

    def _slowest(self) -> float:
        """Seconds of the best plan so far, beyond which nothing is of use; infinite where it is above the budget."""
        best = self.best.planned
        return best.seconds if best.peak_with_workspace_bytes <= self.budget else math.inf

    def _take(self, carried: Carried) -> None:
        """Have a plan as the best if it is."""
        excess = max(carried.placed().peak_bytes - self.budget, 0)
        if (excess, carried.seconds()) > self.best.rank(self.budget)[:2]:
            return
        plan = carried.plan(NAME)
        if plan.host_bytes > self.host.nbytes or plan.rank(self.budget) >= self.best.rank(self.budget):
            return
        self.best = plan

    def _wanted(self, evaluator: Evaluator, clock: OffloadClock) -> list[IdleGap]:
        """Gaps across a position above the budget, the largest times how long they last."""
        high = np.concatenate(([0], np.cumsum(evaluator.bytes > self.budget)))
        begins = clock.begins_s
        worthwhile = SETTINGS.worthwhile * (evaluator.peak - self.budget)
        there = self.gaps.all()
        gaps = [
            gap
            for gap in there
            if not gap.is_between and gap.nbytes >= worthwhile and high[gap.end] > high[gap.start + 1]
        ]
        gaps.sort(key=lambda gap: -gap.nbytes * (begins[gap.end] - begins[gap.start + 1]))
        # The state of a step is idle for longest, and would take the places of all others.
        state = [gap for gap in gaps if self.step.state_bytes[gap.storage]]
        others = [gap for gap in gaps if not self.step.state_bytes[gap.storage]]
        chosen = others[: STAYS.most_gaps] + state[: STAYS.most_gaps // STAYS.state_part]
        chosen += [gap for gap in there if gap.is_between]
        return sorted(chosen, key=IdleGap.as_they_begin)

    def _rounded(
        self, pool: RepetitionPool, values: Floats, columns: StayColumns, shares: Floats
    ) -> _Rounded:
        """Repetitions and gaps of an answer, in whole numbers."""
        items = zip(pool.items, values[: len(pool.items)].tolist(), strict=True)
        whole: dict[GapKey, float] = {}
        for column, share in zip(columns.columns, shares.tolist(), strict=True):
            whole[column.gap.key] = whole.get(column.gap.key, 0.0) + share
        return (
            tuple(item for item, share in items if share > HALF),
            tuple(key for key, share in whole.items() if share > HALF and AWAY not in key[1:]),
        )

    def _carried(self, chosen: _Rounded) -> Carried:
        """An answer in whole numbers, with more gaps where it is too high, and fewer where they are not needed."""
        items, gaps = chosen
        carried = self._start(self.units.sequence(items))
        places = carried.evaluator.places
        wanted = [
            (storage, places[last], places[following] if following >= 0 else len(places))
            for storage, last, following in gaps
        ]
        carried.chosen = gaps_like(wanted, [g for s in {s for s, _, _ in wanted} for g in carried.gaps.of(s)])
        carried.fill_until_within(self.guard)
        full, seconds = carried.chosen, self._place(carried)
        carried.drop_needless()
        if carried.chosen != full and self._place(carried) > seconds:
            carried.chosen = full
            self._place(carried)
        return carried

    def _ways_found(self, carried: Carried, columns: StayColumns) -> None:
        """Have the ways of being away of a placement among the columns."""
        by_key = {column.gap.key: column.gap for column in columns.columns}
        order, position = carried.evaluator.order, {n: p for p, n in enumerate(self.order)}
        count = self.step.node_count
        anchor_of = carried.evaluator.anchor_of
        placed = carried.placed()
        for gap, (_, gone, load, _) in zip(placed.gaps, placed.places, strict=True):
            own = by_key.get(gap.key)
            if own is None:
                continue
            leaves = None if gap.begins_before else int(order[gone])
            returns = None if gap.ends_behind else anchor_of(int(order[load]))
            if (leaves or 0) < count and (returns or 0) < count:
                columns.add(
                    own,
                    own.start if leaves is None else position[leaves],
                    own.end if returns is None else position[returns],
                )

"""The search behind a curve: plans for many budgets, each found with the help of the others.

A ladder of plans from the chain program comes first, then the floor; what is proved says how far each budget is from
its bound. From then on the budget that is worth most is improved by the next thing that has not been tried on it: the
plan of a smaller budget with repetitions taken back, that of a larger one brought down, a start from the closure
model, ruin and recreate. What brings nothing halves what the budget is worth, so work goes where it helps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.failed_stages import attempt
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.recompute.bounds.envelope import BoundEnvelope
from neaptide.planner.recompute.closure_model import ClosureModel, held_creators, model_at
from neaptide.planner.recompute.curve.points import PlanArchive
from neaptide.planner.recompute.curve.starts import chain_plans, nothing_held
from neaptide.planner.recompute.descents import descent_tries
from neaptide.planner.recompute.engine import RecomputeEngine
from neaptide.planner.recompute.forward_units import turning_point
from neaptide.planner.recompute.recomputations import repetition_pairs
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem

# For single budgets only, where what is cheap does not do.
_BY_PRICES: Final = "lagrangian"
_COSTLY: Final = ("block_dp", "lagrangian", "ruin_recreate")


@dataclass(slots=True)
class _Effort:
    """What has been done for one budget.

    Attributes:
        starts: sequences that it was searched from.
        closures: of the closure model's starts, those still to be tried.
        ruins: rounds of ruin and recreate so far.
        misses: attempts since the last that helped.
    """

    starts: set[int]
    closures: Iterator[tuple[float, bool, bool]]
    ruins: int = 0
    misses: int = 0


class CurveSearch:
    """Plans for many budgets, and what is proved of them.

    Attributes:
        step: the problem.
        engine: that runs the strategies.
        guard: of all work.
        archive: all plans that count.
        baseline: program order.
        start: the order of first executions that all plans with recomputation share.
        bounds: for that order.
    """

    def __init__(
        self,
        step: StepProblem,
        limits: Limits,
        interrupt: threading.Event | None,
        *,
        order: tuple[int, ...] | None = None,
        check: Callable[[Sequence[int]], None] | None = None,
    ) -> None:
        """Nothing has been searched yet but the order to start from.

        Args:
            step: the problem.
            limits: of the whole search.
            interrupt: set it to stop.
            order: of first executions that every plan keeps to; by default the best one that is found.
            check: raises for a sequence that is not legal: the strategy that gave it has failed.
        """
        self.engine = RecomputeEngine(step, limits, interrupt, order=order, check=check)
        self.step, self.guard = step, self.engine.guard
        self.archive = PlanArchive()
        self.baseline = baseline(step)
        self.start = self.engine.first_plan()
        if order is None:
            self.archive.note(self.baseline)
            self.start = self._best_start()
        # Plans of orders that were not chosen are not kept: what is proved holds for this one.
        self.archive.note(self.start)
        self.bounds = BoundEnvelope(step, self.start.sequence, guard=self.guard)
        self.tries = descent_tries(step.node_count)
        self._models: dict[int, ClosureModel] = {}

    def find_floor(self, budget: int, count: int) -> None:
        """Plans of the chain program on the way down to a budget, and then as far below as descents get."""
        self.climb_down(budget, count)
        self.sink(budget)

    def climb_down(self, budget: int, count: int) -> None:
        """So many plans of the chain program, from the peak of the start down to a budget."""
        high, low = self.start.peak_with_workspace_bytes, max(budget, self.step.lower_bound_bytes)
        if high <= low:
            return

        def climb() -> None:
            order, chains = self.start.sequence, self.engine.chains
            for plan in chain_plans(self.step, order, high, low, count, self.guard, chains):
                self.archive.note(plan)

        attempt("the ladder of the chain program", climb, lambda: None)

    def sink(self, budget: int) -> None:
        """As far down to a budget as descents get, from plans of the closure model and the lowest ones known."""
        high, low = self.start.peak_with_workspace_bytes, max(budget, self.step.lower_bound_bytes)
        if high <= low:
            return
        chain = sorted(self.archive.plans, key=lambda plan: plan.peak_with_workspace_bytes)[
            : SETTINGS.floor_chains
        ]
        for share in SETTINGS.floor_shares:
            self._sink(self._close(low + int(share * (high - low)), 1.0) or self.start, low)
        for plan in chain:
            self._sink(plan, low)
        self._sink(self.archive.lowest(), low)

    def sink_from_start(self, budget: int) -> None:
        """As far down to a budget as descents from the start get: the cheapest way to a low peak."""
        low = max(budget, self.step.lower_bound_bytes)
        self._sink(self.start, low)

    def hold_nothing(self) -> PlannedSequence | None:
        """The plan that recomputes all that the backward reads; None where it takes too much to make, or is known to be no use."""
        lowest = self.archive.lowest().peak_with_workspace_bytes
        if self._stops() or not self.is_clearly_above(self.step.lower_bound_bytes, lowest):
            return None
        guard = LimitGuard(self.guard.left(SETTINGS.parts), self.engine.interrupt)

        def made() -> PlannedSequence | None:
            return nothing_held(self.step, self.start.sequence, SETTINGS.polish_tries, guard)

        plan = attempt("the plan that holds nothing", made, lambda: None)
        self.guard.exhausted(guard.work)
        return plan

    @staticmethod
    def is_clearly_above(low: int, high: int) -> bool:
        """Whether a peak is worth a much longer time beside a higher one."""
        return low <= (1.0 - SETTINGS.floor_progress) * high

    def improve(self, budgets: Sequence[int]) -> None:
        """Better plans for some budgets, until they are close to what is proved or nothing is left to try."""
        self.bounds.prove_floor(self.archive.lowest().peak_with_workspace_bytes)
        self.bounds.prove(budgets)
        efforts = {budget: _Effort(set(), iter(self._closures())) for budget in budgets}
        first = self.guard.work
        most = SETTINGS.curve_tries_per_node * self.step.node_count
        is_certified = False
        while not self._stops() and self.guard.work - first < most:
            worth = {b: self._worth(b, effort) for b, effort in efforts.items()}
            budget = max(worth, key=lambda b: (worth[b], b), default=None)
            if budget is None or worth[budget] < SETTINGS.near:
                if is_certified:
                    break
                # What seems far may only be badly bounded.
                self._certify(budgets)
                is_certified = True
                continue
            before = self.gap(budget)
            if not self._attempt(budget, efforts[budget]):
                del efforts[budget]
            elif self.gap(budget) < (1.0 - SETTINGS.least_progress) * before:
                efforts[budget].misses = 0
            else:
                efforts[budget].misses += 1
        if not is_certified:
            self._certify(budgets)
        self._take_back_all(budgets)

    def attempts(self, budget: int) -> Iterator[None]:
        """One way after the other to a better plan for a budget, each at the next call; whoever has enough stops."""
        effort = _Effort(set(), iter(self._closures()))
        while not self._stops() and self._attempt(budget, effort):
            yield

    def costly_attempts(self, budget: int) -> Iterator[None]:
        """The strategies that a curve of many budgets has no time for, each at the next call."""
        for name in _COSTLY:
            if not self._stops():
                best = self.archive.best(budget) or self.archive.lowest()
                plan = self.start if name == "block_dp" else best
                self.archive.note(self._run_strategy(name, plan, budget, SETTINGS.polish_tries))
                yield

    def speed_up(self, budget: int) -> None:
        """The best plan for a budget with repetitions taken back, then with others chosen by their prices."""
        best = self.archive.best(budget)
        if best is None or self._is_settled(budget) or self._stops():
            return
        self._take_back(best, budget)
        best = self.archive.best(budget) or best
        self.archive.note(self._run_strategy(_BY_PRICES, best, budget, SETTINGS.polish_tries))

    def certify(self, budget: int) -> None:
        """Ask the certificate of one budget, which looks at several steps together, unless the program is too large."""
        if self.step.node_count <= SETTINGS.most_nodes:
            self.bounds.certify(budget)

    def gap(self, budget: int) -> float:
        """Distance of the best plan from its bound as a share of the baseline's time; 0 where nothing can be won."""
        best, bound = self.archive.best(budget), self.bounds.seconds(budget)
        if bound == float("inf") or not self.step.baseline_seconds:
            return 0.0
        if best is None:
            return float("inf")
        return max(best.seconds - bound, 0.0) / self.step.baseline_seconds

    # Which budget is next, and what is done for it.

    def _worth(self, budget: int, effort: _Effort) -> float:
        if self._is_settled(budget):
            return 0.0
        gap = self.gap(budget)
        return 0.0 if gap <= SETTINGS.close_enough else min(gap, SETTINGS.worth_most) / 2**effort.misses

    def _attempt(self, budget: int, effort: _Effort) -> bool:
        """The next thing that has not been tried on a budget; False when nothing is left."""
        best = self.archive.best(budget)
        if best is not None and self._is_new(best, effort):
            self._take_back(best, budget)
            return True
        above = [p for p in self.archive.plans if p.peak_with_workspace_bytes > budget]
        nearest = min(above, key=lambda p: p.peak_with_workspace_bytes, default=None)
        if nearest is not None and self._is_new(nearest, effort):
            self._descend(nearest, budget)
            return True
        for share, whole, at_binding in effort.closures:
            if at_binding:
                node = self.bounds.node(budget)
                if node >= 0:
                    place = Evaluator(self.step, self.start.sequence).place_of(node)
                    self._close(budget, share, position=place, whole=whole)
                    return True
            elif not whole or self.step.node_count <= SETTINGS.most_nodes:
                self._close(budget, share, whole=whole)
                return True
        if best is not None and effort.ruins < SETTINGS.turns:
            effort.ruins += 1
            self.archive.note(self._run_strategy("ruin_recreate", best, budget, self.tries, effort.ruins))
            return True
        return False

    @staticmethod
    def _is_new(plan: PlannedSequence, effort: _Effort) -> bool:
        key = hash(plan.sequence)
        is_new = key not in effort.starts
        effort.starts.add(key)
        return is_new

    @staticmethod
    def _closures() -> list[tuple[float, bool, bool]]:
        """Share of the room, whether in whole numbers, whether at the binding step."""
        shares = [(share, False, False) for share in SETTINGS.closure_shares]
        return [(1.0, False, False), (1.0, True, False), (1.0, False, True), *shares]

    def _certify(self, budgets: Sequence[int]) -> None:
        """The certificate of one budget that is far from its bound: the nearest of those, since it may be met."""
        far = [b for b in budgets if self.gap(b) > SETTINGS.far and self.archive.best(b) is not None]
        if far:
            self.certify(min(far, key=self.gap))

    def _is_settled(self, budget: int) -> bool:
        """Whether no plan can be faster: order alone meets the budget, or the bound is met."""
        best = self.archive.best(budget)
        if best is not None and len(best.sequence) == self.step.node_count:
            return True
        return best is not None and self.gap(budget) <= SETTINGS.proved

    # Ways to a plan.

    def _best_start(self) -> PlannedSequence:
        """Updates hoisted, and another order where the bound of orders says that a better one may exist."""
        found = self.baseline
        early = self._run_strategy("early_updates", found, found.peak_with_workspace_bytes)
        if early.peak_with_workspace_bytes <= found.peak_with_workspace_bytes:
            # Even where the peak is elsewhere: gradients that are gone leave room under smaller budgets.
            found = early
        if (
            self.step.order_lower_bound_bytes > SETTINGS.lower_order * found.peak_with_workspace_bytes
            or self._stops()
        ):
            return found
        work = self.engine.part_of_work(SETTINGS.order_work // max(self.step.node_count, 1))
        other = self._run_strategy("best_order", found, found.peak_with_workspace_bytes, work)
        is_better = other.peak_with_workspace_bytes < SETTINGS.lower_order * found.peak_with_workspace_bytes
        return other if is_better else found

    def _sink(self, plan: PlannedSequence, budget: int) -> None:
        """Drops as long as they lower the peak by much."""
        stalled = 0
        while plan.peak_with_workspace_bytes > budget and stalled < SETTINGS.stalls and not self._stops():
            search = self._search(plan, budget)
            search.descend()
            before, plan = plan.peak_with_workspace_bytes, self._keep(search, "greedy_recompute")
            is_stalled = before - plan.peak_with_workspace_bytes < SETTINGS.floor_progress * before
            stalled = stalled + 1 if is_stalled else 0

    def _take_back_all(self, budgets: Sequence[int]) -> None:
        """Each budget once more from the best plan for the one below it."""
        below: PlannedSequence | None = None
        for budget in sorted(budgets):
            if self._stops():
                return
            best = self.archive.best(budget)
            if best is not None and best is below and not self._is_settled(budget):
                self._take_back(best, budget)
            below = self.archive.best(budget)

    def _take_back(self, plan: PlannedSequence, budget: int) -> None:
        """A plan with room, with repetitions taken back."""
        search = self._search(plan, budget)
        search.put_back()
        self._keep(search, plan.strategy)

    def _descend(self, plan: PlannedSequence, budget: int) -> None:
        """A plan brought within a budget by further drops, then repetitions taken back."""
        search = self._search(plan, budget)
        search.repair()
        self._keep(search, "greedy_recompute")

    def _close(
        self, budget: int, share: float, *, position: int | None = None, whole: bool = False
    ) -> PlannedSequence | None:
        """A plan from the closure model at one step; None where nothing is to be done or nothing fits."""
        if self._is_settled(budget) or self._stops():
            return None
        return attempt(
            "the strategy closure",
            lambda: self._closed(budget, share, position=position, whole=whole),
            lambda: None,
        )

    def _closed(
        self, budget: int, share: float, *, position: int | None, whole: bool
    ) -> PlannedSequence | None:
        order = self.start.sequence
        model = self._model(turning_point(Evaluator(self.step, order)) if position is None else position)
        # A program takes about as long as so many changes.
        self.guard.exhausted(self.step.node_count * (SETTINGS.whole_work if whole else 1))
        room = model.room(budget, share)
        held = held_creators(self.step, model, room, whole=whole, time_s=self.guard.remaining_s())
        if held is None:
            return None
        search = self._search(self.start, budget)
        search.drop_all_but(model, held)
        return self._keep(search, "closure")

    def _model(self, position: int) -> ClosureModel:
        if position not in self._models:
            self._models[position] = model_at(Evaluator(self.step, self.start.sequence), position)
        return self._models[position]

    def _search(self, plan: PlannedSequence, budget: int) -> GreedyRecompute:
        """A descent from a plan, with tries of its own; they are charged when its result is kept."""
        guard = LimitGuard(self.engine.left(self.tries), self.engine.interrupt)
        return GreedyRecompute(self.engine.problem(budget, plan.sequence), guard)

    def _keep(self, search: GreedyRecompute, name: str) -> PlannedSequence:
        self.guard.exhausted(search.guard.work)
        found = PlannedSequence.of(search.evaluator, name)
        self.archive.note(found)
        return found

    def _run_strategy(
        self, name: str, plan: PlannedSequence, budget: int, tries: int | None = None, number: int = 0
    ) -> PlannedSequence:
        pairs = (repetition_pairs(other.sequence, self.step.node_count) for other in self.archive.plans)
        known = frozenset[tuple[int, int]]().union(*pairs)
        problem = replace(self.engine.problem(budget, plan.sequence), known=known)
        seed = self.engine.seed + number
        return self.engine.run(name, problem, tries=tries, seed=seed) or plan

    def _stops(self) -> bool:
        return not self.engine.goes_on()

"""The curve of time against memory, from the peak without recomputation down to the lowest peak found, in one search.

Every plan that is met on the way is kept in an archive, so that one found for a small budget counts for all larger
ones: time never rises with the budget. A budget is not searched from nothing: it starts from the plan of the budget
above it (drop more) and of the one below it (take repetitions back); the closure model gives each a second start. What
time or work is left goes to the budgets whose plans are farthest from their proved bounds.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from neaptide.errors import UsageError
from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.certificate import RecomputeBound, recompute_bound
from neaptide.planner.recompute.closure_model import ClosureModel, held_creators, model_at
from neaptide.planner.recompute.curve_points import CurvePoint, PlanArchive, RecomputeCurve
from neaptide.planner.recompute.forward_units import turning_point
from neaptide.planner.strategies import strategy
from neaptide.planner.strategies.greedy_recompute import GreedyRecompute
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.replays import Closure, Replays
from neaptide.units import format_bytes

DEFAULT_POINTS: Final = 20
# Work of one descent: changes tried, and some for the nodes that they repeat. One that works needs one or two a node,
# one that thrashes takes any number.
_TRIES_PER_NODE: Final = 5
_MOST_TRIES: Final = 8000
_NODES_PER_TRY: Final = 8
# Shares of the room that the closure model is given, as far as the gap asks for more.
_SHARES: Final = (0.96, 0.92, 0.85, 0.78, 0.7, 0.62, 0.55)
_MOST_MISSES: Final = 2
# Whole numbers where branch and bound takes a fraction of a second.
_WHOLE_NODES: Final = 3000
# Parts of the baseline's time: a gap below the first is left alone, one below the second counts as none.
_CLOSE_ENOUGH: Final = 1.25e-3
_PROVED: Final = 1e-8
# Polishing: changes tried by all budgets together.
_POLISH_TRIES_PER_NODE: Final = 20
_MOST_POLISH_TRIES: Final = 20_000
# The way to the floor: so many steps by the closure model, then descents until two lower the peak by less than a share.
_STAIRS: Final = 10
_MOST_STALLS: Final = 2
_FLOOR_PROGRESS: Final = 0.01
_FLOOR_CLOSENESS: Final = 0.01  # of the range between bound and lowest peak, where bisection stops


def recompute_curve(
    step: StepProblem,
    budgets: Sequence[int] | None = None,
    *,
    count: int = DEFAULT_POINTS,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
) -> Outcome[RecomputeCurve]:
    """Plans for many budgets in one search.

    Args:
        step: the program.
        budgets: highest peaks with workspace, in any order; by default `count` even steps from the baseline's peak
            to the lowest peak found.
        count: of budgets, when none are given; at least 2.
        limits: time, work and seed. Without a time limit the answer is the same on every machine.
        interrupt: set it to stop; the best plans so far are returned.

    Returns:
        An outcome with a value always. `OPTIMAL`: each plan is proved fastest, or its budget proved out of reach,
        for its order of first executions.

    Raises:
        UsageError: fewer than two budgets to choose, or none given.
    """
    if budgets is None and count < 2:
        raise UsageError(f"a curve cannot have {count} points", next_step="ask for at least two")
    if budgets is not None and not budgets:
        raise UsageError("a curve needs budgets", next_step="give some, or none at all for even steps")
    return _CurveSearch(step, limits or Limits(), interrupt).run(budgets, count)


class _ChargedReplays(Replays):
    """Replays whose closures are charged by their length: near the floor each of them repeats half the program."""

    def __init__(self, evaluator: Evaluator, guard: LimitGuard) -> None:
        super().__init__(evaluator)
        self._guard = guard

    def closure(
        self, storage: int, before: int, *, hold_share: float = 0.0, hold_from: int | None = None
    ) -> Closure:
        found = super().closure(storage, before, hold_share=hold_share, hold_from=hold_from)
        if work := len(found.nodes) // _NODES_PER_TRY:
            self._guard.exhausted(work)
        return found


class _CurveSearch:
    def __init__(self, step: StepProblem, limits: Limits, interrupt: threading.Event | None) -> None:
        self.step = step
        self.limits = limits
        self.interrupt = interrupt
        self.guard = LimitGuard(limits, interrupt)
        self.archive = PlanArchive()
        self.baseline = baseline(step)
        self.start = self.baseline
        self.bounds: dict[int, RecomputeBound] = {}
        self.out_of_reach = -1
        self.tries = min(_TRIES_PER_NODE * step.node_count + 100, _MOST_TRIES)
        self._models: dict[int, ClosureModel] = {}

    def run(self, asked: Sequence[int] | None, count: int) -> Outcome[RecomputeCurve]:
        self.archive.note(self.baseline)
        early = self._run_strategy("early_updates", self.baseline, self.baseline.peak_with_workspace_bytes)
        if early.peak_with_workspace_bytes < self.baseline.peak_with_workspace_bytes:
            self.start = early
        lowest = min(asked) if asked else self.step.lower_bound_bytes
        self._to_floor(max(lowest, self.step.lower_bound_bytes))
        budgets = self._budgets(asked, count)
        self._down(budgets)
        for budget in budgets:
            self._close(budget, 1.0)
        self._up(budgets)
        for budget in budgets:
            self._bound(budget)
        for budget in sorted(budgets, key=self._gap, reverse=True):
            self._refine(budget)
        self._up(budgets)
        self._polish(budgets)
        return self._outcome(budgets)

    def _budgets(self, asked: Sequence[int] | None, count: int) -> list[int]:
        """Largest first."""
        if asked is not None:
            return sorted(set(asked), reverse=True)
        high, low = self.baseline.peak_with_workspace_bytes, self.archive.lowest().peak_with_workspace_bytes
        return sorted({high - (high - low) * k // (count - 1) for k in range(count)}, reverse=True)

    # Ways to a plan for one budget.

    def _down(self, budgets: Sequence[int]) -> None:
        """Each budget from the best plan for the one above it."""
        plan = self.start
        for budget in budgets:
            if self._stops():
                return
            if not self._is_settled(budget):
                self._descend(plan, budget)
            plan = self.archive.best(budget) or plan

    def _up(self, budgets: Sequence[int]) -> None:
        """Each budget from the best plan for the one below it: repetitions are taken back."""
        below: PlannedSequence | None = None
        for budget in reversed(budgets):
            if self._stops():
                return
            if below is not None and not self._is_settled(budget):
                search = self._search(below, budget)
                search.put_back()
                self._keep(search, below.strategy)
            below = self.archive.best(budget) or below

    def _to_floor(self, budget: int) -> None:
        """Down to a budget: by the closure model in even steps, then by drops as long as they lower the peak by much."""
        high = self.start.peak_with_workspace_bytes
        for stair in range(1, _STAIRS):
            level = high - (high - budget) * stair // _STAIRS
            if self._stops() or level <= budget:
                break
            self._close(level, 1.0)
            if self.archive.best(level) is None:
                break
        plan, stalled = self.archive.lowest(), 0
        while plan.peak_with_workspace_bytes > budget and stalled < _MOST_STALLS and not self._stops():
            search = self._search(plan, budget)
            search.descend()
            before, plan = plan.peak_with_workspace_bytes, self._keep(search, "greedy_recompute")
            is_stalled = before - plan.peak_with_workspace_bytes < _FLOOR_PROGRESS * before
            stalled = stalled + 1 if is_stalled else 0
        self.out_of_reach = -1

    def _descend(self, plan: PlannedSequence, budget: int) -> None:
        """A plan brought within a budget by further drops, then repetitions taken back."""
        search = self._search(plan, budget)
        search.descend()
        search.put_back()
        self._keep(search, "greedy_recompute")

    def _close(self, budget: int, share: float, *, position: int | None = None, whole: bool = False) -> bool:
        """A plan from the closure model at one step; whether it is the best for its budget.

        Where one such plan takes all its tries, repairs have piled up, and others do no better: this budget and
        those below it are left to the other searches.
        """
        before = self.archive.best(budget)
        if budget <= self.out_of_reach or self._is_settled(budget) or self._stops():
            return False
        model = self._model(
            turning_point(Evaluator(self.step, self._order())) if position is None else position
        )
        room = model.fixed_bytes + int(share * (budget - model.fixed_bytes))
        held = held_creators(self.step, model, room, whole=whole, time_s=self.guard.remaining_s())
        if held is None:
            return False
        search = self._search(self.start, budget)
        highest = int(search.evaluator.order[search.evaluator.peak_position])
        dropped = [c for c, used in zip(model.creators, model.is_used, strict=True) if used and c not in held]
        search.drop_units(dropped, highest)
        search.descend()
        search.put_back()
        self._keep(search, "closure")
        if search.guard.check_now() == "work":
            self.out_of_reach = max(self.out_of_reach, budget)
        return self.archive.best(budget) is not before

    def _refine(self, budget: int) -> None:
        """More starts from the closure model, as long as they help and the gap asks for them."""
        if self._gap(budget) <= _CLOSE_ENOUGH:
            return
        if self.step.node_count <= _WHOLE_NODES:
            self._close(budget, 1.0, whole=True)
        binding = self.bounds[budget].node
        if binding >= 0:
            place = Evaluator(self.step, self._order()).place_of(binding)
            self._close(budget, 1.0, position=place)
        misses = 0
        for share in _SHARES:
            if self._stops() or misses > _MOST_MISSES or self._gap(budget) <= _CLOSE_ENOUGH:
                return
            misses = 0 if self._close(budget, share) else misses + 1

    def _polish(self, budgets: Sequence[int]) -> None:
        """Ruin and recreate where the gap is largest, a share of the tries for each."""
        wanting = [b for b in budgets if self._gap(b) > _CLOSE_ENOUGH and self.archive.best(b) is not None]
        wanting.sort(key=self._gap, reverse=True)
        tries = min(_POLISH_TRIES_PER_NODE * self.step.node_count, _MOST_POLISH_TRIES)
        for done, budget in enumerate(wanting):
            best = self.archive.best(budget)
            if self._stops() or best is None:
                break
            share = max(min(tries // (len(wanting) - done), self.tries), 1)
            tries -= share
            self._run_strategy("ruin_recreate", best, budget, share)
        self._up(budgets)

    # What is proved.

    def _bound(self, budget: int) -> None:
        """Prove what a budget costs at least; what holds for a larger one holds for it too."""
        above = [bound for other, bound in self.bounds.items() if other > budget]
        known = max(above, key=lambda bound: bound.seconds, default=None)
        if known is not None and known.is_infeasible:
            self.bounds[budget] = known
            return
        found = recompute_bound(self.step, budget, sequence=self._order(), guard=self.guard)
        self.bounds[budget] = known if known is not None and known.seconds > found.seconds else found

    def _bound_seconds(self, budget: int) -> float:
        bound = self.bounds.get(budget)
        if budget < self.step.lower_bound_bytes or (bound is not None and bound.is_infeasible):
            return float("inf")
        return self.step.baseline_seconds if bound is None else bound.seconds

    def _gap(self, budget: int) -> float:
        """Distance of the best plan from its bound as a share of the baseline's time; 0 where nothing can be won."""
        best, bound = self.archive.best(budget), self._bound_seconds(budget)
        if bound == float("inf") or not self.step.baseline_seconds:
            return 0.0
        return float("inf") if best is None else (best.seconds - bound) / self.step.baseline_seconds

    def _is_settled(self, budget: int) -> bool:
        """Whether no plan can be faster: order alone meets the budget, or the bound is met."""
        best = self.archive.best(budget)
        if best is not None and len(best.sequence) == self.step.node_count:
            return True
        return budget in self.bounds and self._gap(budget) <= _PROVED

    # What the searches run on.

    def _order(self) -> tuple[int, ...]:
        """The order of first executions that all plans share."""
        return self.start.sequence

    def _model(self, position: int) -> ClosureModel:
        if position not in self._models:
            self._models[position] = model_at(Evaluator(self.step, self._order()), position)
        return self._models[position]

    def _search(self, plan: PlannedSequence, budget: int, tries: int | None = None) -> GreedyRecompute:
        """A descent from a plan, with tries of its own; they are charged when its result is kept."""
        guard = LimitGuard(self._left(tries or self.tries), self.interrupt)
        search = GreedyRecompute(PlanningProblem(self.step, budget, start=plan.sequence), guard)
        search.replays = _ChargedReplays(search.evaluator, guard)
        return search

    def _keep(self, search: GreedyRecompute, name: str) -> PlannedSequence:
        self.guard.exhausted(search.guard.work)
        found = PlannedSequence.evaluate(self.step, search.evaluator.sequence(), name)
        self.archive.note(found)
        return found

    def _run_strategy(
        self, name: str, plan: PlannedSequence, budget: int, tries: int | None = None
    ) -> PlannedSequence:
        problem = PlanningProblem(self.step, budget, start=plan.sequence)
        outcome = strategy(name)(problem, self._left(tries), self.interrupt)
        self.guard.exhausted(outcome.work)
        found = outcome.require()
        self.archive.note(found)
        return found

    def _left(self, tries: int | None) -> Limits:
        """What is left of the limits, for one search of so many tries."""
        left = None if self.limits.work is None else max(self.limits.work - self.guard.work, 0)
        work = left if tries is None else tries if left is None else min(left, tries)
        return Limits(self.guard.remaining_s(), work, self.limits.seed)

    def _stops(self) -> bool:
        return self.guard.check_now() is not None

    # The answer.

    def _outcome(self, budgets: Sequence[int]) -> Outcome[RecomputeCurve]:
        lowest = self.archive.lowest()
        points = []
        for budget in budgets:
            best = self.archive.best(budget) or lowest
            bound = self._bound_seconds(budget)
            points.append(
                CurvePoint(
                    budget,
                    best.peak_with_workspace_bytes,
                    best.seconds,
                    min(bound, best.seconds) if best.peak_with_workspace_bytes <= budget else bound,
                    best.strategy,
                    best.sequence,
                )
            )
        bound_bytes = self._floor_bound(lowest.peak_with_workspace_bytes)
        curve = RecomputeCurve(
            tuple(points),
            self.baseline.peak_with_workspace_bytes,
            self.baseline.seconds,
            lowest.peak_with_workspace_bytes,
            bound_bytes,
        )
        stopped = self.guard.check_now()
        slack = _PROVED * self.step.baseline_seconds
        proved = sum(
            point.seconds - point.bound_seconds <= slack
            if point.is_reached
            else point.bound_seconds == float("inf")
            for point in points
        )
        if proved == len(points):
            reason = TerminationReason.OPTIMAL
        else:
            reason = TerminationReason.INTERRUPTED if stopped == "interrupt" else TerminationReason.FEASIBLE
        limit = stopped if stopped in {"time", "work"} and reason is not TerminationReason.OPTIMAL else None
        detail = (
            f"{proved} of {len(points)} budgets proved; the lowest peak found is "
            f"{format_bytes(lowest.peak_with_workspace_bytes)}, none is below {format_bytes(bound_bytes)}"
        )
        return Outcome(curve, Termination(reason, limit, detail), self.guard.seconds(), self.guard.work)

    def _floor_bound(self, lowest: int) -> int:
        """Bytes below which no plan with this order gets, by bisection of what is proved impossible."""
        low = min(self.step.lower_bound_bytes, lowest)
        high = lowest
        while high - low > _FLOOR_CLOSENESS * lowest and not self._stops():
            # The first question is whether there is anything to win at all.
            middle = low if low == self.step.lower_bound_bytes else (low + high) // 2
            if not self._is_impossible(middle):
                if middle == low:
                    return low
                high = middle
            elif middle == low:
                low += 1
            else:
                low = middle + 1
        return low

    def _is_impossible(self, budget: int) -> bool:
        bound = recompute_bound(self.step, budget, sequence=self._order(), guard=self.guard)
        return bound.is_infeasible

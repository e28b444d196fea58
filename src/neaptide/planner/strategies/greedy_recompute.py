"""Recomputation, one marginal decision at a time: lower the highest step by what costs least per byte, put back later.

At the highest step, every storage that lies idle across it may be dropped and recomputed just before its next use.
Its price is the seconds of everything that must run again then, operands that are gone included, per byte that
leaves the step. When the budget is met, repetitions are taken back, dearest first, as long as it stays met. The
same marginal measure drives XLA's rematerialization and Capuchin (ASPLOS 2020), without the second pass.
"""

from __future__ import annotations

import heapq
import threading
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.planner.recompute.units import recompute_units
from neaptide.schedule.changes import Remove
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.instances import TO_END
from neaptide.schedule.replays import Closure, Replays

NAME: Final = "greedy_recompute"

Gap: TypeAlias = tuple[int, int]
"""Executions between which a storage lies idle."""
# An operand is held rather than recomputed where it is at most this part of what it helps to make.
_HOLD_SHARE: Final = 1 / 16
_MOST_EXECUTIONS: Final = 8  # of one node; ends a descent where every drop requires another


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """The start with recomputations that bring its peak to the budget, or as low as this search finds.

    The peak is never higher than that of the start. O(drops x (steps + idle storages)).
    """
    guard = LimitGuard(limits, interrupt)
    search = GreedyRecompute(problem, guard)
    search.repair()
    value = PlannedSequence.of(search.evaluator, NAME)
    is_whole = len(value.sequence) == problem.step.node_count
    is_free = is_whole and value.peak_with_workspace_bytes <= problem.budget_bytes
    return guard.finish(value, best=value.seconds, bound=value.seconds if is_free else None)


def descent_guard(
    guard: LimitGuard, nodes: int, interrupt: threading.Event | None, parts: int = 1
) -> LimitGuard:
    """What one descent of many may take of a search's limits; its work is still to be charged to that."""
    left = guard.left(parts)
    # One that works needs one or two tries a node, one that thrashes takes any number.
    tries = 5 * nodes + 1000
    return LimitGuard(replace(left, work=tries if left.work is None else min(tries, left.work)), interrupt)


class _Variant(Enum):
    """How to come by operands that are gone by the next use; tried in this order.

    `HOLD`: hold on to those that are still there at the highest step. `WHILE_HELD`: the same, but run as soon as
    the last of them is used up otherwise. `MAKE`: recompute them.
    """

    HOLD = 0
    WHILE_HELD = 1
    MAKE = 2


class _Option(NamedTuple):
    """One way of recomputing a storage."""

    variant: _Variant
    closure: Closure
    before: int
    price: float


class GreedyRecompute:
    """A sequence whose peak is brought down by recomputation; other strategies start it from their own drops."""

    def __init__(self, problem: PlanningProblem, guard: LimitGuard) -> None:
        """Nothing has been dropped yet. The guard is charged with the changes that are tried."""
        self.step = problem.step
        self.budget = problem.budget_bytes
        self.guard = guard
        self.evaluator = Evaluator(problem.step, problem.first_sequence())
        self.replays = Replays(self.evaluator)
        self.candidates = [
            s
            for s, creator in enumerate(self.step.creator)
            if creator >= 0 and self.step.storage_bytes[s] and not self.step.refusals[creator]
        ]
        self.drops_left = 0
        self.rejected: set[tuple[int, int, int]] = set()
        self.unfit: set[tuple[int, int, int, _Variant]] = set()

    def descend(self) -> None:
        """Drop storages until the budget is met or nothing helps any more."""
        retried = True
        self.drops_left = 3 * len(self.candidates)
        while self.evaluator.peak > self.budget and self.drops_left > 0 and not self.guard.exhausted():
            if self._lower_peak():
                retried = False
            elif retried:
                return
            else:
                # What did not help before other drops may help after them.
                self.rejected.clear()
                self.unfit.clear()
                retried = True

    def repair(self) -> None:
        """Down to the budget, or as far as descents get; then repetitions taken back where there is room."""
        self.descend()
        self.put_back()

    def put_back(self) -> None:
        """Take repetitions back, dearest per byte first, while the peak stays within budget (or where it is)."""
        allowed = max(self.budget, self.evaluator.peak)
        for _ in range(4):  # what one round takes back may make room for more
            units = recompute_units(self.evaluator)
            units.sort(key=lambda unit: (-unit.seconds / max(unit.nbytes, 1), unit.before, unit.creator))
            taken = 0
            for unit in units:
                if self.guard.exhausted():
                    return
                taken += self.take_back(unit.creator, unit.before, allowed)
            if not taken:
                return

    def take_back(self, creator: int, before: int, allowed: int | None = None) -> bool:
        """Take one repetition back, unless others depend on it or the peak would be above what is allowed."""
        removal = self.replays.removal(creator, before)
        if removal is None or creator not in removal.nodes:
            return False
        if allowed is not None and self._cannot_stay(removal, allowed):
            return False
        self.evaluator.apply(removal)
        if allowed is not None and self.evaluator.peak > allowed:
            self.evaluator.undo()
            return False
        self.evaluator.forget_undo()
        return True

    def _cannot_stay(self, removal: Remove, allowed: int) -> bool:
        """Whether holding on to what a repetition makes is above what is allowed for sure. O(steps in between).

        A filter in front of the exact answer: it reads the bytes between the last use before the repetition and the
        repetition, and grants that every operand which is there only for the repetition is gone as well.
        """
        evaluator, step = self.evaluator, self.step
        gone = {
            execution
            for node in removal.nodes
            for execution in evaluator.executions[node]
            if execution != node and evaluator.anchor_of(execution) == removal.before
        }
        spared = 0
        for storage in {step.value_storage[v] for node in removal.nodes for v in step.operands[node]}:
            if storage >= 0 and any(
                end in gone and start not in gone for start, end in evaluator.spans[storage]
            ):
                spared += step.storage_bytes[storage]
        for node in removal.nodes:
            for storage in step.created[node]:
                spans = evaluator.spans[storage]
                for (_, end), (start, last) in pairwise(spans):
                    # What nothing uses is not held on to.
                    if start in gone and last != start and end != TO_END:
                        between = evaluator.bytes[evaluator.places[end] + 1 : evaluator.places[start]]
                        most = int(between.max(initial=0))
                        if most + step.storage_bytes[storage] - spared > allowed:
                            return True
        return False

    def _lower_peak(self) -> bool:
        """Drop storages at the highest step until another step is the highest; False when nothing helps."""
        evaluator = self.evaluator
        highest = int(evaluator.order[evaluator.peak_position])
        dropped = False
        heap = self._offers(highest)
        while heap:
            price, storage, is_exact = heapq.heappop(heap)
            gap = self._gap(storage, highest)
            if gap is None or (storage, *gap) in self.rejected:
                continue
            option = self._best_option(storage, gap, highest)
            if option and heap and option.price > heap[0][0] and not (is_exact and option.price <= price):
                # Only a price is known better: what is tried is what counts as work.
                heapq.heappush(heap, (option.price, storage, True))
                continue
            if self.guard.exhausted() or self.drops_left <= 0:
                return dropped
            if option is None:
                self.rejected.add((storage, *gap))
                continue
            if self._drop(option, highest):
                dropped = True
                place = evaluator.places[highest]
                if evaluator.peak <= self.budget or evaluator.bytes_at(place) < evaluator.peak:
                    return True
            else:
                self.unfit.add((storage, *gap, option.variant))
                heapq.heappush(heap, (option.price, storage, False))
        return dropped

    def _best_option(self, storage: int, gap: Gap, highest: int) -> _Option | None:
        """The first way of recomputing a storage that has not failed yet."""
        place = self.evaluator.places[highest]
        count = self.step.node_count
        next_use = count if gap[1] == TO_END else self.evaluator.anchor_of(gap[1])
        held: tuple[int, ...] = ()
        for variant in _Variant:
            if (storage, *gap, variant) in self.unfit:
                if variant is _Variant.HOLD:
                    held = self._closure(storage, next_use, place).held
                continue
            before, hold_from = next_use, place
            if variant is _Variant.WHILE_HELD:
                if not held:
                    continue
                ends = max(self._end_before(s, self.evaluator.place_of(next_use)) for s in held)
                before = self.replays.next_anchor(ends + 1)
                if before == next_use or self.evaluator.place_of(before) <= place:
                    continue
            elif variant is _Variant.MAKE:
                hold_from = self.evaluator.place_of(next_use)
            closure = self._closure(storage, before, hold_from)
            price = None if closure.refusal else self._price(storage, closure, highest, gap)
            if price is not None:
                return _Option(variant, closure, before, price)
        return None

    def _closure(self, storage: int, before: int, hold_from: int) -> Closure:
        found = self.replays.closure(storage, before, hold_share=_HOLD_SHARE, hold_from=hold_from)
        # Near the lowest peak each of them repeats half the program, so that tries are no measure of the work.
        if work := len(found.nodes) // SETTINGS.nodes_per_try:
            self.guard.exhausted(work)
        return found

    def _end_before(self, storage: int, place: int) -> int:
        """Position of the last use of a storage before a position."""
        evaluator = self.evaluator
        return max((q for e in evaluator.events(storage) if (q := evaluator.places[e]) < place), default=-1)

    def _offers(self, highest: int) -> list[tuple[float, int, bool]]:
        """Storages that lie idle across a step, with a price that is not too high: their own creator's seconds."""
        worthwhile = SETTINGS.worthwhile * (self.evaluator.peak - self.budget)
        offers: list[tuple[float, int, bool]] = []
        small: list[tuple[float, int, bool]] = []
        for storage in self.candidates:
            if self._gap(storage, highest) is None:
                continue
            size = self.step.storage_bytes[storage]
            price = self.step.repeat_seconds[self.step.creator[storage]] / size
            (offers if size >= worthwhile else small).append((price, storage, False))
        chosen = offers or small
        heapq.heapify(chosen)
        return chosen

    def _gap(self, storage: int, highest: int) -> Gap | None:
        """Last execution before a step and first after it that touch a storage; None when it is not idle there."""
        evaluator = self.evaluator
        places = evaluator.places
        place = places[highest]
        for start, end in evaluator.spans[storage]:
            if places[start] < place and (end == TO_END or places[end] > place):
                break
        else:
            return None
        last, following = -1, TO_END
        last_place, following_place = -1, len(evaluator.order)
        for node in self.step.roles[storage]:
            for execution in evaluator.executions[node]:
                here = places[execution]
                if here == place:
                    return None
                if last_place < here < place:
                    last, last_place = execution, here
                elif place < here < following_place:
                    following, following_place = execution, here
        return last, following

    def _price(self, storage: int, closure: Closure, highest: int, gap: Gap) -> float | None:
        """Seconds per byte that leaves the step; None when nothing leaves it or a node would run too often."""
        evaluator, step = self.evaluator, self.step
        if not closure.nodes or any(len(evaluator.executions[n]) >= _MOST_EXECUTIONS for n in closure.nodes):
            return None
        removed = 0
        places = evaluator.places
        until = _position_of(evaluator, gap[1])
        for sibling in step.created[step.creator[storage]]:
            idle = gap if sibling == storage else self._gap(sibling, highest)
            if idle is not None and _position_of(evaluator, idle[1]) >= until:
                removed += step.storage_bytes[sibling]
        place = places[highest]
        for held in closure.held:
            if all(
                _position_of(evaluator, end) < place or places[start] > place
                for start, end in evaluator.spans[held]
            ):
                removed -= step.storage_bytes[held]
        if removed <= 0:
            return None
        return closure.seconds / removed

    def _drop(self, option: _Option, highest: int) -> bool:
        """Repeat a closure, unless a step gets higher than is allowed or the highest one no lower."""
        evaluator = self.evaluator
        allowed = max(evaluator.peak, self.budget)
        here = evaluator.bytes_at(evaluator.places[highest])
        evaluator.apply(self.replays.insertion(option.closure, option.before))
        if evaluator.peak > allowed or evaluator.bytes_at(evaluator.places[highest]) >= here:
            evaluator.undo()
            return False
        evaluator.forget_undo()
        self.drops_left -= 1
        self._merge_later(option.closure, option.before)
        return True

    def _merge_later(self, closure: Closure, before: int) -> None:
        """Take back the next later repetition of what is there from now on, where that raises no peak."""
        evaluator = self.evaluator
        place = evaluator.place_of(before)
        for node in closure.nodes:
            if not self.step.created[node] or len(evaluator.executions[node]) < 3:
                continue
            later = [e for e in evaluator.executions[node] if evaluator.places[e] > place]
            if later:
                following = min(later, key=evaluator.places.__getitem__)
                if following != node:
                    self.take_back(node, evaluator.anchor_of(following), evaluator.peak)


def _position_of(evaluator: Evaluator, end: int) -> int:
    """Position at which a span ends."""
    return len(evaluator.order) if end == TO_END else evaluator.places[end]

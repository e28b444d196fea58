"""Optimizer updates as soon as their gradient is complete, each only where it does not raise the peak.

A gradient that is used up at once need not wait for the end of the backward. Hoisting every update is no rule:
what it needs besides may be worse than the gradient that it frees, so the profile decides one group at a time.
"""

from __future__ import annotations

import threading
from typing import Final

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.updates import UpdateGroup, update_groups, update_nodes
from neaptide.schedule.changes import Move
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem

NAME: Final = "early_updates"
# Places that are tried when the first is too early: so many other nodes further on.
_DELAYS: Final = (0, 4, 16, 64, 256)


def solve(
    problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
) -> Outcome[PlannedSequence]:
    """Program order with updates hoisted. The peak is never higher than that of the start. O(groups x steps).

    A start with repetitions is returned as it is: moving first executions would unsettle them.
    """
    guard = LimitGuard(limits, interrupt)
    step = problem.step
    start = problem.first_sequence()
    search = _Hoist(step, start, guard)
    if len(start) == step.node_count:
        search.run()
    value = PlannedSequence.of(search.evaluator, NAME)
    return guard.finish(value, best=value.peak_with_workspace_bytes, bound=step.order_lower_bound_bytes)


class _Hoist:
    def __init__(self, step: StepProblem, start: tuple[int, ...], guard: LimitGuard) -> None:
        self.step = step
        self.guard = guard
        self.evaluator = Evaluator(step, start)
        self.updates = update_nodes(step)
        self.placed: set[int] = set()

    def run(self) -> None:
        # A group that ends nothing (a step counter) gains nothing by itself: it moves along with what waits for it,
        # and so no state is written before it must be.
        groups = [group for group in update_groups(self.step, self.updates) if group.read_bytes]
        groups.sort(key=lambda group: (self._earliest(self._with_ancestors(group)), group.nodes))
        for group in groups:
            if self.guard.exhausted():
                return
            self._hoist(group)

    def _hoist(self, group: UpdateGroup) -> None:
        """Move a group to the first place that does not raise the peak, if there is one before its own."""
        nodes = self._with_ancestors(group)
        earliest = self._earliest(nodes)
        own = self.evaluator.place_of(nodes[0])
        before = self.evaluator.peak
        tried = set()
        for delay in _DELAYS:
            place = self._skip(earliest, delay)
            if place >= own or place in tried:
                continue
            tried.add(place)
            target = int(self.evaluator.order[place])
            self.guard.exhausted()
            self.evaluator.apply(Move(nodes, target))
            after = self.evaluator.peak
            if after <= before:
                self.evaluator.forget_undo()
                self.placed.update(nodes)
                return
            self.evaluator.undo()
        self.placed.update(group.nodes)

    def _skip(self, place: int, nodes: int) -> int:
        """The place so many nodes further on, counting none that update."""
        further = self.evaluator.order[place : place + nodes + len(self.updates)].tolist()
        for node in further:
            if not nodes:
                break
            nodes -= node not in self.updates
            place += 1
        return place

    def _earliest(self, nodes: tuple[int, ...]) -> int:
        """First position after everything that the nodes wait for besides each other."""
        inside = set(nodes)
        waited = (p for n in nodes for p in self.step.predecessors[n] if p not in inside)
        return max((self.evaluator.place_of(p) for p in waited), default=-1) + 1

    def _with_ancestors(self, group: UpdateGroup) -> tuple[int, ...]:
        """The group and the updates that it waits for and that have no place yet, in running order."""
        found = set(group.nodes)
        waiting = list(group.nodes)
        while waiting:
            for other in self.step.predecessors[waiting.pop()]:
                if other in self.updates and other not in found and other not in self.placed:
                    found.add(other)
                    waiting.append(other)
        return tuple(sorted(found, key=self.evaluator.place_of))

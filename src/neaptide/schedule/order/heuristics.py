"""Orders made at once: the one of the list, and those that searches start from."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

from neaptide.schedule.order.problem import inverse
from neaptide.schedule.order.steps import Steps

Order: TypeAlias = tuple[int, ...]


class DownsetState:
    """What has run so far, and what each ready op would do.

    Forwards it starts with nothing run. Reversed it starts at the end, and running an op means that it is the last
    of what is still to be placed. A move costs amortised O(couplings of the op).

    Attributes:
        ready: ops that may run now, as keys in the order in which they became ready.
    """

    def __init__(self, steps: Steps, *, reverse: bool = False) -> None:
        self.steps = steps
        self.reverse = reverse
        self.taken: list[int] = []
        count = steps.op_count
        self.bytes = steps.bytes_after(range(count)) if reverse else steps.start_bytes
        # Forwards the last candidate of a coupling frees it; reversed, the first that is placed.
        self._freed = [0] * count
        self._ties = inverse((coupling.ops for coupling in steps.couplings), count)
        self._open = [len(coupling.ops) for coupling in steps.couplings]
        self._open_sum = [sum(coupling.ops) for coupling in steps.couplings]  # which names the last one
        for coupling in steps.couplings if reverse else ():
            for op in coupling.ops:
                self._freed[op] += coupling.nbytes
        self._blockers = [len(x) for x in (steps.successors if reverse else steps.predecessors)]
        self._follow = steps.predecessors if reverse else steps.successors
        indices = range(count)
        self.ready: dict[int, None] = {
            op: None for op in (reversed(indices) if reverse else indices) if not self._blockers[op]
        }

    def growth(self, op: int) -> int:
        """Bytes after an op less bytes before it, in program time, if it is placed now."""
        return self.steps.delta[op] - self._freed[op]

    def frees(self, op: int) -> list[int]:
        """The couplings that a ready op would free if it is placed now."""
        couplings = self.steps.couplings
        return [
            index
            for index in self._ties[op]
            if self._open[index] == (len(couplings[index].ops) if self.reverse else 1)
        ]

    def run(self, op: int) -> tuple[int, ...]:
        """Place a ready op. Returns the ops, ready or not, whose `growth` has changed."""
        self.bytes += -self.growth(op) if self.reverse else self.growth(op)
        del self.ready[op]
        self.taken.append(op)
        changed: list[int] = []
        for index in self._ties[op]:
            coupling = self.steps.couplings[index]
            if self.reverse and self._open[index] == len(coupling.ops):
                others = [other for other in coupling.ops if other != op]
                changed += others
                for other in others:
                    self._freed[other] -= coupling.nbytes
            self._open[index] -= 1
            self._open_sum[index] -= op
            if not self.reverse and self._open[index] == 1:
                last = self._open_sum[index]
                self._freed[last] += coupling.nbytes
                changed.append(last)
        for other in self._follow[op]:
            self._blockers[other] -= 1
            if not self._blockers[other]:
                self.ready[other] = None
        return tuple(changed)

    def order(self) -> Order:
        """The ops taken so far, in program time."""
        return tuple(reversed(self.taken)) if self.reverse else tuple(self.taken)


def backward_list(steps: Steps) -> Order:
    """From the end back: always the op whose placement here holds least before it, as BladeDISC++ does.

    Placed last of what is left, an op's results need not be there before it, and its operands must be. Ties go to
    the op whose operands live least long, that is to the later one in the list.
    """
    state = DownsetState(steps, reverse=True)
    return order_by_priority(state, lambda op: (-state.growth(op), -op))


def lpmf(steps: Steps) -> Order:
    """Inductor's LPMF: of the ready ops that lift the peak so far least, the one with the least growth.

    Least Peak Memory First of `torch/_inductor/memory.py`; growth counts what the op frees, a takeover that depends on
    the order is not known to it. O(n x width).
    """
    state = DownsetState(steps)
    peak = state.bytes
    while state.ready:
        room = peak - state.bytes
        _, _, op = min((max(steps.rise[op], room), state.growth(op), op) for op in state.ready)
        peak = max(peak, state.bytes + steps.rise[op])
        state.run(op)
    return state.order()


def order_by_priority(state: DownsetState, priority: Callable[[int], tuple[int, ...]]) -> Order:
    """Run the ready op of lowest priority until there is none. O(n log n) but for ops whose priority changes."""
    heap = [(priority(op), op) for op in state.ready]
    heapq.heapify(heap)
    while heap:
        rank, op = heapq.heappop(heap)
        if op not in state.ready or rank != priority(op):
            continue
        ready_before = len(state.ready)
        changed = state.run(op)
        for other in list(state.ready)[ready_before - 1 :] if len(state.ready) >= ready_before else ():
            heapq.heappush(heap, (priority(other), other))
        for other in changed:
            if other in state.ready:
                heapq.heappush(heap, (priority(other), other))
    return state.order()

"""A lower bound of the peak: every order must leave each set of ops that does not hold all of them.

Let R be a set of ops that holds the ancestors of each of its ops. One op outside R is the first of those to run. It
runs from a downset inside R that holds all its ancestors; one minimum cut gives the fewest bytes of such a downset,
and so a lower bound of the op's hill. The lowest of these bounds over all ops outside R bounds the peak. R then grows
by every op whose hill is within the bound. Each hill takes the best downset inside R, whether or not one order
reaches all of these downsets. The result is never below the min-cut bound, and costs a cut for each op at the edge
of R. Reversed, the same holds for the last op that runs outside a set that holds all descendants.
"""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.bounds.cuts import inverse
from neaptide.schedule.order.bounds.lower import hill_bound
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.steps import to_steps


def escape_bound(
    problem: OrderProblem,
    order: Sequence[int],
    *,
    floor: int,
    upper_bytes: int,
    guard: LimitGuard,
    reverse: bool = False,
) -> int:
    """The lowest peak at which every op is reached, if all downsets that fit could be reached together.

    Args:
        problem: storages and ops.
        order: a legal order; the better it is, the fewer cuts are needed: along it ops are reached without any.
        floor: a bound known already; never less is returned.
        upper_bytes: peak of the best order known; at this bound the work is done.
        guard: one unit of work per cut; on meeting a limit the bound so far is returned.
        reverse: from the end backwards.
    """
    return _Escape(problem, order, floor, upper_bytes, guard, reverse=reverse).bound()


class _Escape:
    def __init__(
        self,
        problem: OrderProblem,
        order: Sequence[int],
        floor: int,
        upper_bytes: int,
        guard: LimitGuard,
        *,
        reverse: bool,
    ) -> None:
        self.problem = problem
        self.steps = to_steps(problem)
        self.successors = inverse(self.steps.predecessors)
        self.nbytes = floor
        self.upper_bytes = upper_bytes
        self.guard = guard
        self.reverse = reverse
        hills = evaluate_order(problem, order).bytes_at
        self.way = [(op, hills[position]) for position, op in enumerate(order)]
        if reverse:
            self.way.reverse()
        self.passed = 0  # of the way
        self.outside = dict.fromkeys(range(problem.op_count))
        before = self.successors if reverse else self.steps.predecessors
        self.after: Sequence[Sequence[int] | set[int]] = (
            self.steps.predecessors if reverse else self.successors
        )
        self.waits_for = [len(ops) for ops in before]
        self.edge = dict.fromkeys(op for op, count in enumerate(self.waits_for) if not count)

    def bound(self) -> int:
        while self.nbytes < self.upper_bytes:
            self._follow_way()
            if not self.outside or not self._grow():
                break
        return min(self.nbytes, self.upper_bytes)

    def _follow_way(self) -> None:
        """Along the known order what fits is reached at no cost."""
        while self.passed < len(self.way):
            op, hill = self.way[self.passed]
            if op in self.outside:
                if hill > self.nbytes:
                    return
                self._reach(op)
            self.passed += 1

    def _grow(self) -> bool:
        """Reach what fits at the edge, else what takes least; False when a limit stops it."""
        hills: dict[int, int] = {}
        is_larger = False
        for op in list(self.edge):
            if self.guard.exhausted() is not None or self.guard.check_now() is not None:
                return False
            hills[op] = self._hill(op)
            if hills[op] <= self.nbytes:
                self._reach(op)
                is_larger = True
        if not is_larger:
            cheapest = min(hills, key=lambda op: (hills[op], op))
            self.nbytes = hills[cheapest]
            self._reach(cheapest)
        return True

    def _hill(self, op: int) -> int:
        """Fewest bytes while an op runs, if it is the first outside what is reached (reversed: the last)."""
        if self.reverse:
            include = (other for other in self.outside if other != op)
            return hill_bound(self.problem, self.steps, op, include=include, successors=self.successors)
        return hill_bound(self.problem, self.steps, op, exclude=self.outside, successors=self.successors)

    def _reach(self, op: int) -> None:
        del self.outside[op]
        del self.edge[op]
        for other in self.after[op]:
            self.waits_for[other] -= 1
            if not self.waits_for[other]:
                self.edge[other] = None

"""An old order put on an edited problem, and the stretch of it that the edit touches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from neaptide.errors import VerifyError
from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.orders.windows import bytes_between


def adapted_order(problem: OrderProblem, old_order: Sequence[int], *, early: bool = False) -> tuple[int, ...]:
    """A legal order of the edited problem close to the old one.

    An op keeps its place as far as dependencies let it; a new op goes to the place of the first op that needs it,
    or right after the last that it needs when none does.

    Args:
        problem: after the edit.
        old_order: ops of `problem` that were there before, in the order they had; ops that are not in it are new. It
            may break dependencies that the edit has brought.
        early: a new op goes right after the last that it needs, where it needs any.

    Raises:
        VerifyError: `old_order` names an op twice or one that is not there.
    """
    rank: dict[int, tuple[float, int]] = {}
    for position, op in enumerate(old_order):
        if not 0 <= op < problem.op_count or op in rank:
            raise VerifyError(f"the old order names op {op} twice, or it is not there")
        rank[op] = (float(position), op)
    if early:
        for op in range(problem.op_count):
            if op not in rank and all(b in rank for b in problem.predecessors[op]):
                last = max((rank[b][0] for b in problem.predecessors[op]), default=None)
                if last is not None:
                    rank[op] = (last + 0.25, op)
    for op in reversed(range(problem.op_count)):
        if op not in rank:
            users = [rank[s][0] for s in problem.successors[op] if s in rank]
            if users:
                rank[op] = (min(users) - 0.5, op)
    for op in range(problem.op_count):
        if op not in rank:
            rank[op] = (max((rank[b][0] for b in problem.predecessors[op]), default=-1.0) + 0.25, op)
    order = tuple(sorted(rank, key=rank.__getitem__))
    place = [0] * problem.op_count
    for position, op in enumerate(order):
        place[op] = position
    if all(place[b] < place[op] for op, before in enumerate(problem.predecessors) for b in before):
        return order
    state = DownsetState(to_steps(problem))
    heap = [(rank[op], op) for op in state.ready]
    heapify(heap)
    while heap:
        _, op = heappop(heap)
        before = len(state.ready)
        state.run(op)
        for other in list(state.ready)[before - 1 :]:
            heappush(heap, (rank[other], other))
    return state.order()


def stretch(
    problem: OrderProblem, order: Sequence[int], touched: Iterable[int], most_ops: int
) -> tuple[int, int]:
    """Positions around the touched ops, widened to the narrowest waists within reach."""
    wanted = set(touched)
    spots = [position for position, op in enumerate(order) if op in wanted]
    if not spots:
        return 0, 0
    first, last = min(spots), max(spots)
    slack = max(8, (most_ops - (last + 1 - first)) // 2)
    widths = _waists(problem, order)
    valleys = bytes_between(problem, order)

    def narrowness(position: int) -> tuple[int, int]:
        return widths[position], valleys[position]

    starts = range(max(0, first - slack), first + 1)
    ends = range(last + 1, min(len(order), last + 1 + slack) + 1)
    start = min(starts, key=lambda position: (narrowness(position), position))
    end = min(ends, key=lambda position: (narrowness(position), -position))
    return start, end


def _waists(problem: OrderProblem, order: Sequence[int]) -> list[int]:
    """Before each position and at the end: how many later ops are ready already. O(edges)."""
    place = {op: position for position, op in enumerate(order)}
    change = [0] * (len(order) + 2)
    for op in order:
        ready_from = max((place[b] + 1 for b in problem.predecessors[op]), default=0)
        change[ready_from] += 1
        change[place[op] + 1] -= 1
    widths = []
    total = 0
    for position in range(len(order) + 1):
        total += change[position]
        widths.append(total)
    return widths

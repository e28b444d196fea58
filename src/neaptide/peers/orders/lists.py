"""Orders that compilers make today, without search and without proof: for comparison."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from neaptide.schedule.order.evaluate import DownsetState
from neaptide.schedule.order.heuristics import LIST_METHODS, ListMethod, Order, order_by_priority
from neaptide.schedule.order.problem import OrderProblem


def reverse_post_order(problem: OrderProblem) -> Order:
    """Depth-first from the first ops along their consumers, finished ops reversed: the textbook's reverse post-order.

    Not what HMCOS calls so: its baseline walks from the outputs along operands, see `depth_first`.
    """
    roots = [op for op in range(problem.op_count) if not problem.predecessors[op]]
    finished = _post_order(roots, lambda op: problem.successors[op])
    return tuple(reversed(finished))


def depth_first(problem: OrderProblem) -> Order:
    """XLA's post-order: from the last ops back along their operands, an op once its operands are out.

    HMCOS (DAC 2022) calls this the reverse post-order and starts from it: its graph is walked from the outputs, so it
    is the reverse post-order of the graph with arcs turned round.
    """
    roots = [op for op in range(problem.op_count) if not problem.successors[op]]
    return tuple(_post_order(roots, lambda op: problem.predecessors[op]))


def xla_dfs(problem: OrderProblem) -> Order:
    """XLA's DFS scheduler: post-order that visits operands of many extra users, then of large totals, first.

    Both figures are sums over all that leads to an op, with double counting that XLA caps at the number of ops and
    at the bytes met so far (`hlo_memory_scheduler.cc`).
    """
    extra_users = [0] * problem.op_count
    totals = [0] * problem.op_count
    state = DownsetState(problem)
    met = 0
    for op in range(problem.op_count):
        own = state.alloc(op)
        met += own
        before = problem.predecessors[op]
        extra = max(0, len(problem.successors[op]) - 1)
        extra_users[op] = min(problem.op_count, extra + sum(extra_users[b] for b in before))
        totals[op] = min(met, own + sum(totals[b] for b in before))

    def operands(op: int) -> Sequence[int]:
        return sorted(problem.predecessors[op], key=lambda b: (-extra_users[b], -totals[b], b))

    roots = [op for op in range(problem.op_count) if not problem.successors[op]]
    return tuple(_post_order(roots, operands))


def xla_list(problem: OrderProblem) -> Order:
    """XLA's list scheduler: always the ready op that frees most and makes least, then the one with most users.

    It ignores what an op needs while it runs.
    """
    state = DownsetState(problem)

    def priority(op: int) -> tuple[int, int, int]:
        return state.alloc(op) - state.dying(op), -len(problem.successors[op]), op

    return order_by_priority(state, priority)


def lpmf(problem: OrderProblem) -> Order:
    """Inductor's LPMF: of the ready ops that keep below the peak so far the least growth, else the least allocation.

    Least Peak Memory First of `torch/_inductor/memory.py`; growth counts what the op frees, in-place saving is not
    known to it. O(n log n) where most ready ops fit, O(n x width) at worst.
    """
    state = DownsetState(problem)
    peak = state.bytes
    growths: list[tuple[int, int]] = []
    needs: list[tuple[int, int]] = []

    def need(op: int) -> int:
        return state.alloc(op) + problem.ops[op].workspace

    def offer(op: int) -> None:
        heapq.heappush(growths, (state.alloc(op) - state.dying(op), op))

    for op in state.ready:
        offer(op)
        heapq.heappush(needs, (need(op), op))
    while state.ready:
        while needs[0][1] not in state.ready:
            heapq.heappop(needs)
        least = needs[0][0]
        if state.bytes + least > peak:
            # None fits: the least allocation, and of those the least growth.
            tied = []
            while needs and needs[0][0] == least:
                entry = heapq.heappop(needs)
                if entry[1] in state.ready:
                    tied.append(entry)
            chosen = min((state.alloc(op) - state.dying(op), op) for _, op in tied)[1]
            for entry in tied:
                heapq.heappush(needs, entry)
        else:
            chosen = _first_that_fits(state, growths, need, peak - state.bytes)
        peak = max(peak, state.bytes + need(chosen))
        ready_before = len(state.ready)
        changed = state.run(chosen)
        fresh = list(state.ready)[ready_before - 1 :]
        for op in fresh:
            offer(op)
            heapq.heappush(needs, (need(op), op))
        for op in changed:
            if op in state.ready:
                offer(op)
    return state.order()


def _first_that_fits(
    state: DownsetState, growths: list[tuple[int, int]], need: Callable[[int], int], room: int
) -> int:
    """The ready op with the least growth among those that fit; outdated entries are dropped on the way."""
    aside = []
    while True:
        growth, op = heapq.heappop(growths)
        if op not in state.ready or growth != state.alloc(op) - state.dying(op):
            continue
        if need(op) <= room:
            break
        aside.append((growth, op))
    for entry in aside:
        heapq.heappush(growths, entry)
    return op


LISTS: Final[Mapping[str, ListMethod]] = MappingProxyType(
    {
        "reverse_post_order": reverse_post_order,
        "lpmf": lpmf,
        "xla_list": xla_list,
        "xla_dfs": xla_dfs,
        "xla_post_order": depth_first,
    }
)
"""As `neaptide.named_peers.LISTS` names them."""
ALL_LISTS: Final[Mapping[str, ListMethod]] = MappingProxyType({**LIST_METHODS, **LISTS})
"""With those of the default, to compare."""


def _post_order(roots: Sequence[int], children: Callable[[int], Sequence[int]]) -> list[int]:
    """Depth-first post-order without recursion; children in the order given."""
    finished: list[int] = []
    seen: set[int] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(children(root)))]
        while stack:
            op, rest = stack[-1]
            child = next((c for c in rest if c not in seen), None)
            if child is None:
                finished.append(op)
                stack.pop()
            else:
                seen.add(child)
                stack.append((child, iter(children(child))))
    return finished

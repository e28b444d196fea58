"""Orders made at once: the one of the list, and those that searches start from."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from neaptide.schedule.order.evaluate import DownsetState
from neaptide.schedule.order.problem import OrderProblem

Order: TypeAlias = tuple[int, ...]


def program_order(problem: OrderProblem) -> Order:
    """The order of the list: the baseline."""
    return tuple(range(problem.op_count))


def backward_list(problem: OrderProblem) -> Order:
    """From the end back: always the op whose placement here holds least before it, as BladeDISC++ does.

    Placed last of what is left, an op's results need not be there before it, and its operands must be. Ties go to
    the op whose operands live least long, that is to the later one in the list.
    """
    state = DownsetState(problem, reverse=True)

    def priority(op: int) -> tuple[int, int]:
        return state.dying(op) - state.alloc(op), -op

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


ListMethod: TypeAlias = Callable[[OrderProblem], Order]
LIST_METHODS: Final[Mapping[str, ListMethod]] = MappingProxyType(
    {"program_order": program_order, "backward_list": backward_list, "lpmf": lpmf}
)
"""Those of the default. Those of compilers are peers: beside these two they decide no answer (`ablation.py order`)."""

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


def forward_list(problem: OrderProblem) -> Order:
    """Always the ready op with the least growth, the later one among equals: the mirror image of `backward_list`."""
    state = DownsetState(problem)
    return order_by_priority(state, lambda op: (state.alloc(op) - state.dying(op), op))


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
    {"program_order": program_order, "backward_list": backward_list, "forward_list": forward_list}
)
"""Those of the default. Those of compilers are peers: beside these two they decide no answer (`ablation.py order`)."""

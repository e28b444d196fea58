"""Bytes of an order from the storages themselves: the checker of what searches find in `steps`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from neaptide.errors import VerifyError
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import shared_bytes, takeovers


@dataclass(frozen=True, slots=True)
class OrderProfile:
    """Bytes while each op of an order runs; what is there from the start, and no position, without ops."""

    peak_bytes: int
    bytes_at: tuple[int, ...]
    peak_position: int | None


def evaluate_order(problem: OrderProblem, order: Sequence[int]) -> OrderProfile:
    """Play an order and count bytes at every op. O(accesses)."""
    check_order(problem, order)
    position_of = [0] * len(order)
    for position, op in enumerate(order):
        position_of[op] = position
    last: list[int] = []
    change = [0] * (len(order) + 1)
    at_rest = 0
    for storage, accessors in zip(problem.storages, problem.accessors, strict=True):
        index = len(last)
        kept = storage.resident or storage.output
        final = len(order) - 1 if kept else max((position_of[op] for op in accessors), default=-1)
        last.append(final)
        if kept and not accessors:
            at_rest += storage.nbytes  # there from the start or never: nothing writes it
        elif final >= 0:
            change[0 if problem.from_start[index] else position_of[accessors[0]]] += storage.nbytes
            change[final + 1] -= storage.nbytes
    if not order:
        return OrderProfile(at_rest, (), None)
    bytes_at = []
    for position, (op, live) in enumerate(zip(order, accumulate(change[:-1]), strict=True)):
        dying = [pair for pair in takeovers(problem, op) if last[pair.read] == position]
        bytes_at.append(at_rest + live + problem.ops[op].workspace - shared_bytes(dying))
    peak = max(bytes_at)
    return OrderProfile(peak, tuple(bytes_at), bytes_at.index(peak))


def check_order(problem: OrderProblem, order: Sequence[int]) -> None:
    """Says what is wrong with an order."""
    position_of: dict[int, int] = {}
    for position, op in enumerate(order):
        if not 0 <= op < problem.op_count:
            raise VerifyError(f"there is no op {op} to order")
        if op in position_of:
            raise VerifyError(f"op {problem.ops[op].name} stands twice in the order")
        position_of[op] = position
    for op, before in enumerate(problem.predecessors):
        if op not in position_of:
            raise VerifyError(f"op {problem.ops[op].name} is missing from the order")
        for other in before:
            if other not in position_of or position_of[other] > position_of[op]:
                raise VerifyError(
                    f"op {problem.ops[op].name} stands before op {problem.ops[other].name}, which must run first"
                )

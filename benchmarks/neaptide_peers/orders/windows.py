"""A part of an ordering problem as a problem of its own, and who must run before and after whom: on sets of storages and bits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.search.lattice import mask_of
from neaptide.schedule.order.sharing import shared_bytes, takeovers, touched


def window_problem(
    problem: OrderProblem, done: int, ops: Sequence[int], *, relaxed: bool = False
) -> OrderProblem:
    """The problem of running some ops after all of `done` and before all others.

    Its peak, for an order of the ops, is the highest hill of these ops in the whole order; what is there all the
    time and is not touched by them is one resident storage.

    Args:
        problem: the whole.
        done: bitset of the ops that have run: a downset.
        ops: the window, in a legal order, so that `done` and they together are a downset again. Op k of the result
            is `ops[k]`.
        relaxed: count in-place takeovers as made where the operand has readers after the window, so that hills are
            no higher than in any order that runs some of those readers earlier.
    """
    position = {op: k for k, op in enumerate(ops)}
    inside = mask_of(ops)
    later = ((1 << problem.op_count) - 1) & ~done & ~inside
    used = dict.fromkeys(s for op in ops for s in touched(problem.ops[op]))
    index = {storage: k for k, storage in enumerate(used)}
    there = set()
    background = 0
    storages = []
    for number, storage in enumerate(problem.storages):
        accessors = problem.accessors[number]
        kept = storage.resident or storage.output
        exists = problem.from_start[number] or (bool(accessors) and bool(done >> accessors[0] & 1))
        is_needed = kept or any(later >> op & 1 for op in accessors)
        if number not in index:
            if exists and is_needed and (accessors or kept):
                background += storage.nbytes
            continue
        if exists:
            there.add(number)
    for number in used:
        storage = problem.storages[number]
        is_needed = storage.output or any(later >> op & 1 for op in problem.accessors[number])
        storages.append(OrderStorage(storage.name, storage.nbytes, storage.resident, is_needed))
    storages.append(OrderStorage("background", background, resident=True))
    records = []
    for op in ops:
        record = problem.ops[op]
        # What is overwritten and there already counts as read: nothing else would say that it is there.
        reads = dict.fromkeys((*record.reads, *(s for s in record.writes if s in there)))
        pairs = takeovers(problem, op)
        is_assumed = relaxed and any(
            later >> reader & 1 for pair in pairs for reader in problem.accessors[pair.read]
        )
        records.append(
            OrderOp(
                record.name,
                tuple(index[s] for s in reads),
                tuple(index[s] for s in record.writes),
                record.workspace - (shared_bytes(pairs) if is_assumed else 0),
                () if is_assumed else tuple((index[p.written], index[p.read]) for p in pairs),
                tuple(sorted(position[b] for b in problem.predecessors[op] if b in position)),
            )
        )
    return OrderProblem(tuple(storages), tuple(records), problem.name)


def closures(problem: OrderProblem) -> tuple[list[int], list[int]]:
    """For each op the sets of all ops that must run before it and after it. O(edges x ops / word)."""
    before = [0] * problem.op_count
    after = [0] * problem.op_count
    for op, earlier in enumerate(problem.predecessors):
        for other in earlier:
            before[op] |= before[other] | 1 << other
    for op in reversed(range(problem.op_count)):
        for other in problem.successors[op]:
            after[op] |= after[other] | 1 << other
    return before, after


def bytes_between(problem: OrderProblem, order: Sequence[int]) -> list[int]:
    """Bytes before each op and after the last: entry p is the state in which `order[p]` starts. O(accesses)."""
    position_of = {op: p for p, op in enumerate(order)}
    change = [0] * (len(order) + 2)
    for index, storage in enumerate(problem.storages):
        accessors = problem.accessors[index]
        kept = storage.resident or storage.output
        if not accessors and not (kept and problem.from_start[index]):
            continue
        start = 0 if problem.from_start[index] else position_of[accessors[0]] + 1
        end = len(order) + 1 if kept else max(position_of[op] for op in accessors) + 1
        if start < end:
            change[start] += storage.nbytes
            change[end] -= storage.nbytes
    return list(accumulate(change[: len(order) + 1]))

"""Cuts of a problem that lose nothing: lowest downsets by minimum cut, articulation ops, certified splits.

A downset is *superset-minimal* if no larger one holds fewer bytes, *subset-minimal* if no smaller one does. Bytes of
downsets are submodular, so an order can be led through a superset-minimal set without raising its first part, and
through a subset-minimal one without raising its second part.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from neaptide.schedule.order.bounds.cuts import lowest_state
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.steps import Steps, to_steps


def superset_minimal(problem: OrderProblem, op: int, steps: Steps | None = None) -> frozenset[int]:
    """The downset with the fewest bytes among those in which an op has run: superset-minimal. One minimum cut."""
    return lowest_state(steps or to_steps(problem), include=(op,))


def subset_minimal(problem: OrderProblem, op: int, steps: Steps | None = None) -> frozenset[int]:
    """The downset with the fewest bytes among those in which an op has not run: subset-minimal. One minimum cut."""
    return lowest_state(steps or to_steps(problem), exclude=(op,))


def articulation_ops(problem: OrderProblem) -> tuple[int, ...]:
    """Ops that every order runs at the same position: all others come before or after them. O(size), ascending.

    When list order comes to such an op it is the only one that is ready, and so it is from the end backwards. All
    orders pass through the two downsets on either side.
    """
    count = problem.op_count
    alone = [0] * (count + 1)  # differences: at each position, how many ops are ready, forwards and backwards
    for op in range(count):
        before, after = problem.predecessors[op], problem.successors[op]
        alone[before[-1] + 1 if before else 0] += 1
        alone[op + 1] -= 1
        alone[op] += 1
        alone[after[0] if after else count] -= 1
    return tuple(op for op, ready in enumerate(accumulate(alone[:count])) if ready == 2)


def restrict(
    problem: OrderProblem, ran: frozenset[int], until: frozenset[int]
) -> tuple[OrderProblem, list[int]]:
    """The problem of getting from one downset to a larger one, and the original index of each of its ops.

    Bytes that are there all the time stay counted, so peaks compare with those of the whole. O(size).
    """
    ops = sorted(until - ran)
    index_of = {op: index for index, op in enumerate(ops)}
    storages: list[OrderStorage] = []
    renumbered: dict[int, int] = {}
    from_before: set[int] = set()
    for index, storage in enumerate(problem.storages):
        accessors = problem.accessors[index]
        here = any(op in index_of for op in accessors)
        kept = storage.resident or storage.output
        alive = problem.from_start[index] or bool(accessors and accessors[0] in ran)
        over = not kept and all(op in ran for op in accessors)
        if over or not (here or alive):
            continue
        renumbered[index] = len(storages)
        outlives = kept or any(op not in until for op in accessors)
        resident = storage.resident or (alive and outlives)
        storages.append(OrderStorage(storage.name, storage.nbytes, resident, outlives))
        if alive and not resident:
            from_before.add(index)
    records: list[OrderOp] = []
    for op in ops:
        record = problem.ops[op]
        first = tuple(s for s in record.writes if s in from_before and s not in record.reads)
        records.append(
            OrderOp(
                record.name,
                tuple(renumbered[s] for s in (*record.reads, *first)),
                tuple(renumbered[s] for s in record.writes),
                record.workspace,
                tuple((renumbered[w], renumbered[r]) for w, r in record.in_place),
                tuple(index_of[b] for b in problem.predecessors[op] if b in index_of),
            )
        )
    return OrderProblem(tuple(storages), tuple(records), problem.name), ops


def certified_splits(problem: OrderProblem, order: Sequence[int], bound: int) -> list[frozenset[int]]:
    """Prefixes of an order at which the problem falls apart without loss, given a lower bound of its peak.

    A prefix qualifies if it is superset-minimal and the order behind it never exceeds the bound: then the best peak
    is the larger of the best peak up to the prefix and what comes behind it. Only valleys of the order are tried.
    One minimum cut each; the caller limits their number by passing an order with few valleys below the bound.
    Problems with an `in_place` whose operand has several last readers have no certified splits here.

    Args:
        problem: what is ordered.
        order: a legal order.
        bound: no order of the problem has a lower peak.
    """
    steps = to_steps(problem)
    if any(coupling.is_pin for coupling in steps.couplings):
        return []
    levels, hills = play(steps, order)
    found: list[frozenset[int]] = []
    low = None
    for position in range(len(order) - 1, 0, -1):
        if hills[position] > bound:
            break
        if low is not None and levels[position] > low:
            continue  # something behind it is lower, so it is not superset-minimal
        low = levels[position]
        prefix = frozenset(order[:position])
        if superset_minimal_of(steps, prefix) == prefix:
            found.append(prefix)
    return found[::-1]


def superset_minimal_of(steps: Steps, downset: frozenset[int]) -> frozenset[int]:
    """The largest of the lowest downsets that contain the given one. One minimum cut."""
    return lowest_state(steps, include=downset)


def play(steps: Steps, order: Sequence[int]) -> tuple[list[int], list[int]]:
    """Bytes before each op of an order, with those at the end, and while each runs."""
    waiting = [len(coupling.ops) for coupling in steps.couplings]
    mine: dict[int, list[int]] = {}
    for index, coupling in enumerate(steps.couplings):
        for op in coupling.ops:
            mine.setdefault(op, []).append(index)
    level = steps.start_bytes
    levels, hills = [level], []
    for op in order:
        hills.append(level + steps.rise[op])
        level += steps.delta[op]
        for index in mine.get(op, ()):
            waiting[index] -= 1
            if not waiting[index]:
                level -= steps.couplings[index].nbytes
        levels.append(level)
    return levels, hills

"""The problem between two downsets of another one."""

from __future__ import annotations

from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage


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
        live = problem.from_start[index] or bool(accessors and accessors[0] in ran)
        over = not kept and all(op in ran for op in accessors)
        if over or not (here or live):
            continue
        renumbered[index] = len(storages)
        outlives = kept or any(op not in until for op in accessors)
        resident = storage.resident or (live and outlives)
        storages.append(OrderStorage(storage.name, storage.nbytes, resident, outlives))
        if live and not resident:
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

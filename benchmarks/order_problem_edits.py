"""Edits of ordering problems that no graph stands after, such as those of published networks.

Every edit keeps the storages that were there at their indices; new ones come after them, and those that fall out
of use stay without accessors. Each function returns None where the edit does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.sharing import is_created_by
from neaptide_peers.incremental.edit import Edit


def recompute(problem: OrderProblem, storage: int) -> Edit | None:
    """Make a storage a second time for its last reader, so that it may die in between.

    Args:
        problem: before.
        storage: made alone by an op that makes nothing else, with at least two readers.
    """
    accessors = problem.accessors[storage]
    place = problem.storages[storage]
    if len(accessors) < 3 or place.output or place.resident or not _is_single_result(problem, storage):
        return None
    creator, user = accessors[0], accessors[-1]
    if not _may_move(problem, creator, user):
        return None
    twin = len(problem.storages)

    def renamed(read: int) -> int:
        return twin if read == storage else read

    again = replace(
        problem.ops[creator], name=f"{problem.ops[creator].name}_again", writes=(twin,), in_place=()
    )
    record = problem.ops[user]
    late = replace(
        record,
        reads=tuple(map(renamed, record.reads)),
        in_place=tuple((written, renamed(read)) for written, read in record.in_place),
    )
    return _edited(problem, [replace(place, name=f"{place.name}_again")], {user: [again, late]})


def fuse(problem: OrderProblem, storage: int) -> Edit | None:
    """Rewrite the op that makes a storage and the only one that reads it as one op, which never makes it.

    Args:
        problem: before.
        storage: made alone by one op and read by one other.
    """
    accessors = problem.accessors[storage]
    place = problem.storages[storage]
    if len(accessors) != 2 or place.output or place.resident or not _is_single_result(problem, storage):
        return None
    first, second = accessors
    before, after = problem.ops[first], problem.ops[second]
    if storage in after.writes or not _may_move(problem, first, second):
        return None
    through = [read for written, read in before.in_place if written == storage]
    pairs = [
        (written, source)
        for written, read in after.in_place
        for source in (through if read == storage else [read])
    ]
    whole = OrderOp(
        f"{before.name}+{after.name}",
        tuple(dict.fromkeys((*before.reads, *(read for read in after.reads if read != storage)))),
        after.writes,
        max(before.workspace, after.workspace),
        tuple(dict.fromkeys(pairs)),
        tuple(sorted({*before.after, *after.after} - {first})),
    )
    return _edited(problem, [], {first: [], second: [whole]})


def split(problem: OrderProblem, op: int) -> Edit | None:
    """Rewrite an op with one result as two: one that makes as much, and one, elementwise, that makes the result of it.

    Args:
        problem: before.
        op: with one result, which it creates.
    """
    record = problem.ops[op]
    if len(record.writes) != 1 or not is_created_by(problem, record.writes[0], op) or not record.reads:
        return None
    (written,) = record.writes
    if written in record.reads or problem.storages[written].resident:
        return None
    middle = len(problem.storages)
    pairs = tuple((middle, read) for _, read in record.in_place)
    first = replace(record, name=f"{record.name}_0", writes=(middle,), in_place=pairs)
    last = OrderOp(f"{record.name}_1", (middle,), (written,), in_place=((written, middle),))
    storage = OrderStorage(f"{record.name}_middle", problem.storages[written].nbytes)
    return _edited(problem, [storage], {op: [first, last]})


def fission(problem: OrderProblem, chain: Sequence[int], parts: int) -> Edit | None:
    """Run an op, or a chain of ops, part by part; an op at the end concatenates the parts.

    Args:
        problem: before.
        chain: ops with one result each, each but the last read by the next one only.
        parts: at least 2.
    """
    middle: list[int] = []
    for place, op in enumerate(chain):
        record = problem.ops[op]
        if len(record.writes) != 1 or not is_created_by(problem, record.writes[0], op) or not record.reads:
            return None
        if record.writes[0] in record.reads:
            return None
        if place + 1 < len(chain):
            storage = record.writes[0]
            last_use = (op, chain[place + 1])
            if problem.accessors[storage] != last_use or problem.storages[storage].output:
                return None
            middle.append(storage)
        if not _may_move(problem, op, chain[-1]):
            return None
    storages: list[OrderStorage] = []
    ops: list[OrderOp] = []
    results: list[int] = []
    for part in range(parts):
        before: dict[int, int] = {}
        for op in chain:
            record = problem.ops[op]
            whole = problem.storages[record.writes[0]]
            made = len(problem.storages) + len(storages)
            nbytes = whole.nbytes * (part + 1) // parts - whole.nbytes * part // parts
            storages.append(OrderStorage(f"{whole.name}_{part}", nbytes))
            pairs = tuple((made, before[read]) for _, read in record.in_place if read in before)
            ops.append(
                OrderOp(
                    f"{record.name}_{part}",
                    tuple(before.get(read, read) for read in record.reads),
                    (made,),
                    -(-record.workspace // parts),
                    pairs,
                    tuple(other for other in record.after if other not in chain),
                )
            )
            before = {record.writes[0]: made}
        results.append(made)
    ops.append(OrderOp(f"{problem.ops[chain[-1]].name}_parts", tuple(results), problem.ops[chain[-1]].writes))
    instead: dict[int, list[OrderOp]] = {op: [] for op in chain}
    instead[chain[-1]] = ops
    return _edited(problem, storages, instead)


def _is_single_result(problem: OrderProblem, storage: int) -> bool:
    """Whether an op makes this storage and nothing else, and no other op writes it."""
    creator = problem.accessors[storage][0]
    return (
        is_created_by(problem, storage, creator)
        and problem.ops[creator].writes == (storage,)
        and sum(storage in problem.ops[op].writes for op in problem.accessors[storage]) == 1
    )


def _may_move(problem: OrderProblem, op: int, to: int) -> bool:
    """Whether an op finds the same bytes at a later place of the list, and nothing between waits for it by name."""
    writers = (
        other for read in problem.ops[op].reads for other in problem.accessors[read] if op < other < to
    )
    overwritten = any(set(problem.ops[op].reads) & set(problem.ops[other].writes) for other in writers)
    return not overwritten and not any(op in problem.ops[other].after for other in range(op + 1, to))


def _edited(
    problem: OrderProblem, storages: Sequence[OrderStorage], instead: Mapping[int, Sequence[OrderOp]]
) -> Edit:
    """Put ops in the place of others; the last of several is what became of the one before.

    New ops name those in `after` by their indices before the edit.
    """
    ends: list[int] = []  # by op before: one past the last op in its place
    count = 0
    for op in range(problem.op_count):
        count += len(instead[op]) if op in instead else 1
        ends.append(count)
    # Who waits for an op that is gone waits for the one that has taken it over: the next op with something in place.
    heir = list(ends)
    for op in reversed(range(problem.op_count)):
        if op in instead and not instead[op]:
            heir[op] = heir[next(other for other in instead if other > op and instead[other])]
    ops: list[OrderOp] = []
    changed: list[int] = []
    for op, record in enumerate(problem.ops):
        for new in instead.get(op, (record,)):
            if op in instead:
                changed.append(len(ops))
            moved = tuple(sorted({heir[other] - 1 for other in new.after}))
            ops.append(new if moved == new.after else replace(new, after=moved))
    now_at = tuple(
        None if op in instead and not instead[op] else ends[op] - 1 for op in range(problem.op_count)
    )
    return Edit(
        OrderProblem((*problem.storages, *storages), tuple(ops), problem.name), now_at, tuple(changed)
    )

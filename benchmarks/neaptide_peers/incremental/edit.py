"""An edit as an ordering problem sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from neaptide.ir.edits.edited import Edited
from neaptide.schedule.order.problem import OrderOp, OrderProblem


@dataclass(frozen=True, slots=True)
class Edit:
    """An edited problem, and what became of the ops before.

    Storages that were there keep their indices; new ones come after them, and those that fall out of use stay without
    accessors.

    Attributes:
        problem: after the edit.
        now_at: by op before the edit, its index after it; None where it is gone, or stands elsewhere. Rising.
        changed: ops after the edit that are new, or read or write something else than before; ascending.
    """

    problem: OrderProblem
    now_at: tuple[int | None, ...]
    changed: tuple[int, ...]


def edit_of(before: OrderProblem, after: OrderProblem, edited: Edited) -> Edit:
    """The edit of a graph as one of its ordering problem. O(size).

    Args:
        before: of the graph that was edited; op k is node k, and storage k is storage k. Storages after those of the
            graph are in both problems.
        after: of the edited graph, made in the same way.
        edited: what it became.
    """
    own = len(edited.storage_of)
    extra = len(after.storages) - own
    first_extra = len(before.storages) - extra
    index = [*edited.storage_of, *range(first_extra, len(before.storages))]
    # What nothing touches any more has no bytes, unless it were kept to the end.
    storages = [replace(storage, output=False) if storage.output else storage for storage in before.storages]
    for storage, old in enumerate(index):
        if old < 0:
            index[storage] = len(storages)
            storages.append(after.storages[storage])
        else:
            storages[old] = after.storages[storage]
    ops = [_renamed(op, index) for op in after.ops]
    now_at: list[int | None] = [None] * before.op_count
    apart = frozenset(displaced(edited))
    changed = []
    for op, old in enumerate(edited.node_of):
        if old >= 0 and op not in apart:
            now_at[old] = op
            if _does_as_before(before.ops[old], ops[op]):
                continue
        changed.append(op)
    problem = OrderProblem(tuple(storages), tuple(ops), after.name)
    return Edit(problem, tuple(now_at), tuple(changed))


def _renamed(op: OrderOp, index: list[int]) -> OrderOp:
    return replace(
        op,
        reads=tuple(sorted(index[storage] for storage in op.reads)),
        writes=tuple(sorted(index[storage] for storage in op.writes)),
        in_place=tuple((index[written], index[read]) for written, read in op.in_place),
    )


def _does_as_before(old: OrderOp, new: OrderOp) -> bool:
    return (old.reads, old.writes, old.workspace, old.in_place) == (
        new.reads,
        new.writes,
        new.workspace,
        new.in_place,
    )


def displaced(edited: Edited) -> tuple[int, ...]:
    """Touched nodes that are new, or that no longer stand between the neighbours that they had. O(touched nodes)."""
    found = []
    last, end = -1, 0  # the old id after which a node must come, and one past the run of touched nodes
    runs = _runs(edited.touched)
    for node in edited.touched:
        if node >= end:
            begin, end = next(runs)
            last = edited.node_of[begin - 1] if begin else -1
        old = edited.node_of[node]
        if last < old and (end == len(edited.node_of) or old < edited.node_of[end]):
            last = old
        else:
            found.append(node)
    return tuple(found)


def _runs(numbers: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Runs of ascending numbers without a gap: the first, and one past the last."""
    begin = 0
    for position in range(1, len(numbers) + 1):
        if position == len(numbers) or numbers[position] > numbers[position - 1] + 1:
            yield numbers[begin], numbers[position - 1] + 1
            begin = position

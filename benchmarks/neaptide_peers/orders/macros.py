"""A coarser problem: runs of ops, each in a fixed order, as single ops."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.schedule.order.problem import OrderOp, OrderProblem
from neaptide.schedule.order.search.lattice import mask_of
from neaptide.schedule.order.sharing import is_created_by, shared_bytes, takeovers, touched


def macro_problem(problem: OrderProblem, groups: Sequence[Sequence[int]]) -> OrderProblem:
    """The problem in which each group runs in one go.

    What lives inside a group only becomes workspace. A storage that others read as well is taken to stay while the
    whole group runs, so the peak of a coarse order is never below that of the order it stands for, and equal where
    all groups are single ops.

    Args:
        problem: storages and ops.
        groups: each op in exactly one; ops of a group in legal order, groups in an order that is legal as well.
    """
    group_of = {op: index for index, group in enumerate(groups) for op in group}
    ops = []
    for index, group in enumerate(groups):
        before = {group_of[b] for op in group for b in problem.predecessors[op]} - {index}
        after = tuple(sorted(before))
        if len(group) == 1:
            record = problem.ops[group[0]]
            ops.append(
                OrderOp(record.name, record.reads, record.writes, record.workspace, record.in_place, after)
            )
        else:
            ops.append(_macro(problem, group, after))
    return OrderProblem(problem.storages, tuple(ops), problem.name)


def expand(groups: Sequence[Sequence[int]], order: Sequence[int]) -> tuple[int, ...]:
    """The ops of an order of groups."""
    return tuple(op for index in order for op in groups[index])


def _macro(problem: OrderProblem, group: Sequence[int], after: tuple[int, ...]) -> OrderOp:
    inside = mask_of(group)
    creator = {s: op for op in group for s in touched(problem.ops[op]) if is_created_by(problem, s, op)}
    last: dict[int, int] = {}  # position of the last use, of what surely dies here
    exported: set[int] = set()
    for position, op in enumerate(group):
        for storage in touched(problem.ops[op]):
            spot = problem.storages[storage]
            others = mask_of(problem.accessors[storage]) & ~inside
            if storage not in creator and not problem.from_start[storage]:
                others &= ~(1 << problem.accessors[storage][0])
            if spot.resident or spot.output or others:
                if storage in creator:
                    exported.add(storage)
            else:
                last[storage] = position
    dying: list[list[int]] = [[] for _ in group]
    for storage, position in last.items():
        dying[position].append(storage)
    size = [storage.nbytes for storage in problem.storages]
    present = peak = 0
    for position, op in enumerate(group):
        present += sum(size[s] for s in touched(problem.ops[op]) if creator.get(s) == op)
        taken = [pair for pair in takeovers(problem, op) if last.get(pair.read) == position]
        peak = max(peak, present + problem.ops[op].workspace - shared_bytes(taken))
        present -= sum(size[s] for s in dying[position])
    names = problem.ops[group[0]].name, problem.ops[group[-1]].name
    every = dict.fromkeys(s for op in group for s in touched(problem.ops[op]))
    overwritten = {s for op in group for s in problem.ops[op].writes}
    return OrderOp(
        f"{names[0]}..{names[1]}",
        tuple(s for s in every if s not in creator),
        tuple(s for s in every if s in exported or (s in overwritten and s not in creator)),
        max(0, peak - sum(size[s] for s in exported)),
        after=after,
    )

"""The layout problem of an ordering problem under an order."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import takeovers


def order_buffers(problem: OrderProblem, order: Sequence[int], *, alignment: int = 1) -> LayoutProblem:
    """Buffers of all storages and scratch bytes, residents included. O(accesses).

    Steps are positions of the order. A result that takes over the whole of an operand of the same size at its last
    use lies in that operand's buffer; one that would take over a part has bytes of its own, so the bytes live here
    are those of the order's peak, or more where sizes differ.
    """
    place = {op: position for position, op in enumerate(order)}
    end = len(order)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, storage in enumerate(problem.storages):
        used = [place[op] for op in problem.accessors[index]]
        if used or storage.resident or storage.output:
            first[index] = 0 if problem.from_start[index] else min(used)
            last[index] = end - 1 if storage.resident or storage.output else max(used)
    home = {index: index for index in first}
    for position, op in enumerate(order):
        for pair in takeovers(problem, op):
            old, new = home[pair.read], home[pair.written]
            is_whole = problem.storages[pair.read].nbytes == problem.storages[pair.written].nbytes
            if old != new and last[old] == position == first[new] and is_whole:
                last[old] = last.pop(new)
                del first[new]
                home[pair.written] = old
    buffers = [
        Buffer(
            problem.storages[index].name,
            first[index],
            last[index] + 1,
            problem.storages[index].nbytes,
            alignment,
        )
        for index in sorted(first)
        if problem.storages[index].nbytes and end
    ]
    buffers += [
        Buffer(
            f"workspace of {problem.ops[op].name}",
            position,
            position + 1,
            problem.ops[op].workspace,
            alignment,
        )
        for position, op in enumerate(order)
        if problem.ops[op].workspace
    ]
    return LayoutProblem(tuple(buffers), problem.name)

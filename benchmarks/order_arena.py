"""The simplest layout of an order's storages: largest first, each at the lowest address that is free all its life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import takeovers


@dataclass(slots=True)
class _Buffer:
    nbytes: int
    first: int
    last: int
    address: int = 0


def planned_arena_bytes(problem: OrderProblem, order: Sequence[int]) -> int:
    """Bytes of one block that holds all storages of an order, workspace included. O(storages^2)."""
    buffers = _buffers(problem, order)
    placed: list[_Buffer] = []
    for buffer in sorted(buffers, key=lambda b: (-b.nbytes, b.first, b.last)):
        beside = [b for b in placed if b.first <= buffer.last and buffer.first <= b.last]
        for other in sorted(beside, key=lambda b: b.address):
            if other.address >= buffer.address + buffer.nbytes:
                break
            buffer.address = max(buffer.address, other.address + other.nbytes)
        placed.append(buffer)
    return max((b.address + b.nbytes for b in placed), default=0)


def _buffers(problem: OrderProblem, order: Sequence[int]) -> list[_Buffer]:
    """Lifetimes in positions of the order; a result that takes over all bytes of an operand extends its buffer."""
    place = {op: position for position, op in enumerate(order)}
    end = len(order)
    spans: dict[int, _Buffer] = {}
    for index, storage in enumerate(problem.storages):
        used = [place[op] for op in problem.accessors[index]]
        if used or storage.resident or storage.output:
            first = 0 if problem.from_start[index] else min(used)
            last = end if storage.resident or storage.output else max(used)
            spans[index] = _Buffer(storage.nbytes, first, last)
    for position, op in enumerate(order):
        for pair in takeovers(problem, op):
            old, new = spans[pair.read], spans[pair.written]
            if old is new or old.last != position or new.first != position or old.nbytes != new.nbytes:
                continue
            old.last = new.last
            spans[pair.written] = old
    found = list({id(buffer): buffer for buffer in spans.values()}.values())
    scratch = [(problem.ops[op].workspace, place[op]) for op in order if problem.ops[op].workspace]
    return found + [_Buffer(nbytes, position, position) for nbytes, position in scratch]

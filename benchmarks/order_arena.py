"""The simplest layouts of an order's storages: one after another, each at the lowest address free all its life."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import takeovers


@dataclass(slots=True)
class ArenaBuffer:
    """Bytes that are live on the positions `first` to `last` of an order, both included."""

    nbytes: int
    first: int
    last: int

    @property
    def area(self) -> int:
        return self.nbytes * (self.last - self.first + 1)


_ROUNDS: Final = 40
_SEQUENCES: Final[tuple[Callable[[ArenaBuffer], tuple[int, ...]], ...]] = (
    lambda b: (-b.area, b.first),
    lambda b: (b.first - b.last, -b.nbytes),
    lambda b: (-b.nbytes, b.first),
    lambda b: (b.first, -b.nbytes),
)


def planned_arena_bytes(problem: OrderProblem, order: Sequence[int]) -> int:
    """Bytes of one block that holds all storages of an order, workspace included. O(rounds x storages^2).

    First fit in a few sequences: largest area first, longest-lived first, largest first, in order of time. While a
    layout is higher than what is live at once, buffers that stick out move ahead in its sequence and it is made again.
    """
    buffers = arena_buffers(problem, order)
    live = evaluate_order(problem, order).peak_bytes
    lowest: int | None = None
    for key in _SEQUENCES:
        sequence = sorted(buffers, key=key)
        for _ in range(_ROUNDS):
            tops = _first_fit(sequence)
            height = max(tops, default=0)
            lowest = height if lowest is None else min(lowest, height)
            if lowest <= live:
                return lowest
            places = [place / 2 if top > live else place for place, top in enumerate(tops)]
            sequence = [sequence[i] for i in sorted(range(len(sequence)), key=places.__getitem__)]
    assert lowest is not None
    return lowest


def _first_fit(buffers: Sequence[ArenaBuffer]) -> list[int]:
    """For each buffer in turn, where it ends if it begins at the lowest address that is free all its life."""
    placed: list[tuple[int, ArenaBuffer]] = []
    tops = []
    for buffer in buffers:
        address = 0
        for start, other in placed:
            if other.first > buffer.last or buffer.first > other.last:
                continue
            if start >= address + buffer.nbytes:
                break
            address = max(address, start + other.nbytes)
        insort(placed, (address, buffer), key=lambda item: item[0])
        tops.append(address + buffer.nbytes)
    return tops


def arena_buffers(problem: OrderProblem, order: Sequence[int]) -> list[ArenaBuffer]:
    """Lifetimes in positions of the order; a result that takes over all bytes of an operand extends its buffer."""
    place = {op: position for position, op in enumerate(order)}
    end = len(order)
    spans: dict[int, ArenaBuffer] = {}
    for index, storage in enumerate(problem.storages):
        used = [place[op] for op in problem.accessors[index]]
        if used or storage.resident or storage.output:
            first = 0 if problem.from_start[index] else min(used)
            last = end if storage.resident or storage.output else max(used)
            spans[index] = ArenaBuffer(storage.nbytes, first, last)
    for position, op in enumerate(order):
        for pair in takeovers(problem, op):
            old, new = spans[pair.read], spans[pair.written]
            if old is new or old.last != position or new.first != position or old.nbytes != new.nbytes:
                continue
            old.last = new.last
            spans[pair.written] = old
    found = list({id(buffer): buffer for buffer in spans.values()}.values())
    scratch = [(problem.ops[op].workspace, place[op]) for op in order if problem.ops[op].workspace]
    return found + [ArenaBuffer(nbytes, position, position) for nbytes, position in scratch]

"""ExecuTorch's `banked_greedy`: every buffer goes to the fastest bank that holds it, those that are pinned first."""

from __future__ import annotations

from dataclasses import dataclass, field

from neaptide.layout.heuristics.end_to_end import lay_end_to_end
from neaptide.layout.heuristics.rules import program_order
from neaptide.layout.pools.spaces import Place, PooledLayout, PooledProblem
from neaptide.layout.result import Layout


def place_banked_greedy(pooled: PooledProblem) -> PooledLayout | None:
    """Pinned buffers, then the others, by size descending; each in the fastest space with room for it. O(n^2).

    In a space it follows `greedy`: the free object closest in size, which grows where it has to, else inside an
    object, else a new one; objects lie end to end. One arena a space.

    Source: pytorch/executorch pull request 21821, as far as its description tells.

    Returns:
        None when some buffer finds room nowhere, where ExecuTorch refuses to export.
    """
    banks = [_Bank(pooled, number) for number in range(len(pooled.spaces))]
    by_speed = sorted(range(len(banks)), key=lambda number: pooled.spaces[number].cost_per_byte)
    by_size = program_order(pooled.problem, -pooled.problem.sizes)
    for index in sorted(by_size, key=lambda index: len(pooled.choices[index]) > 1):
        if not any(number in pooled.choices[index] and banks[number].take(index) for number in by_speed):
            return None
    places: list[Place | None] = [None] * len(pooled)
    sizes: list[tuple[int, ...]] = []
    for number, bank in enumerate(banks):
        layout = bank.layout()
        for index, offset in zip(bank.members, layout.offsets, strict=True):
            places[index] = Place(number, 0, offset)
        sizes.append((layout.arena_bytes,) if bank.members else ())
    placed = tuple(place for place in places if place is not None)
    cost = sum(costs[place.space] for costs, place in zip(pooled.costs, placed, strict=True))
    return PooledLayout(placed, tuple(sizes), cost)


@dataclass(slots=True)
class _Object:
    """Bytes that several buffers use.

    Attributes:
        size: in bytes.
        members: (buffer, offset in the object).
    """

    size: int = 0
    members: list[tuple[int, int]] = field(default_factory=list)


class _Bank:
    """One space while it fills up.

    Attributes:
        members: the buffers in it, in the order in which they came.
    """

    def __init__(self, pooled: PooledProblem, number: int) -> None:
        self._pooled = pooled
        self._number = number
        space = pooled.spaces[number]
        limits = [limit for limit in (space.capacity_bytes, space.max_arena_bytes) if limit is not None]
        self._limit = min(limits, default=None)
        self._objects: list[_Object] = []
        self.members: list[int] = []

    def take(self, index: int) -> bool:
        """Put a buffer somewhere; False, with nothing changed, where the bank has no room."""
        target, inner = self._choose(index)
        is_fixed = self._pooled.problem.buffers[index].offset is not None
        before = 0 if target is None else target.size
        if target is None and not is_fixed:
            target = _Object()
            self._objects.append(target)
        if target is not None:
            target.members.append((index, inner))
            target.size = max(target.size, inner + self._pooled.problem.buffers[index].nbytes)
        self.members.append(index)
        if self._limit is None or self.layout().arena_bytes <= self._limit:
            return True
        self.members.pop()
        if target is not None:
            target.members.pop()
            target.size = before
            if not target.members:
                self._objects.pop()
        return False

    def layout(self) -> Layout:
        """All objects end to end, above whatever is fixed."""
        where = {
            index: (number, inner)
            for number, shared in enumerate(self._objects)
            for index, inner in shared.members
        }
        found = [where.get(index, (0, 0)) for index in self.members]
        return lay_end_to_end(
            self._pooled.part(self._number, self.members),
            [number for number, _ in found],
            [inner for _, inner in found],
            [shared.size for shared in self._objects],
        )

    def _choose(self, index: int) -> tuple[_Object | None, int]:
        """An object and the place in it; no object where there must be a new one, or for a fixed buffer."""
        buffer = self._pooled.problem.buffers[index]
        if buffer.offset is not None:
            return None, 0
        tops = [(shared, self._top(shared, index)) for shared in self._objects]
        free = [shared for shared, top in tops if top == 0]
        if free:
            return min(free, key=lambda shared: abs(shared.size - buffer.nbytes)), 0
        alignment = max(buffer.alignment, self._pooled.spaces[self._number].alignment)
        for shared, top in tops:
            inner = -(-top // alignment) * alignment
            if inner + buffer.nbytes <= shared.size:
                return shared, inner
        return None, 0

    def _top(self, shared: _Object, index: int) -> int:
        """One past the highest byte that a member live with a buffer uses; 0 where there is none."""
        buffers = self._pooled.problem.buffers
        mine = buffers[index]
        return max(
            (
                inner + buffers[other].nbytes
                for other, inner in shared.members
                if buffers[other].start < mine.end and mine.start < buffers[other].end
            ),
            default=0,
        )

"""One way to fill memory spaces: the buffers with the largest saving for their bytes stay in the fast spaces.

Where bytes do not fit at some step, or no layout is found, the live buffer with the smallest saving goes to a later
space. In the end every buffer that fits a faster space after all is put back there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final, TypeAlias

from neaptide.layout.heuristics.placement import Fit, Shelf
from neaptide.layout.pools.arenas import Packing
from neaptide.layout.pools.bounds import CostBound, SectionLoads
from neaptide.layout.pools.settings import SETTINGS
from neaptide.layout.pools.space_packer import SpacePacker
from neaptide.layout.pools.spaces import Place, PooledLayout, PooledProblem
from neaptide.layout.problem import Ints
from neaptide.layout.result import Layout

_Density: TypeAlias = Callable[[int, int, int, int], Fraction]

DENSITIES: Final[Mapping[str, _Density]] = MappingProxyType(
    {
        "saving_per_price": lambda saving, _nbytes, _steps, price: Fraction(saving, price + 1),
        "saving_per_area": lambda saving, nbytes, steps, _price: Fraction(saving, nbytes * steps),
        "saving_per_byte": lambda saving, nbytes, _steps, _price: Fraction(saving, nbytes),
        "saving": lambda saving, _nbytes, _steps, _price: Fraction(saving),
    }
)
"""What a buffer is worth in a space, from its saving, its bytes, its steps, and the price of its bytes there."""
WAYS: Final = (
    ("saving_per_price", False),
    ("saving_per_price", True),
    ("saving_per_area", False),
    ("saving_per_area", True),
    ("saving_per_byte", False),
    ("saving", False),
)
"""Density, and whether buffers are put in one by one or taken out; the best on training graphs first."""


def fill_spaces(
    pooled: PooledProblem,
    sections: SectionLoads,
    bound: CostBound,
    density: str,
    packer: SpacePacker,
    *,
    inserts: bool,
) -> PooledLayout | None:
    """Fill the spaces in order of their cost. O(n^2) for each layout that is tried.

    Args:
        pooled: buffers and spaces.
        sections: of its buffers.
        bound: with the prices of bytes.
        density: one of `DENSITIES`.
        packer: of the problem; when its guard says stop, what is found by then is kept.
        inserts: start from what must be in a space and add the best; otherwise start from everything and take out
            the worst.

    Returns:
        None where what must be in a space finds no layout there; that proves nothing.
    """
    order = sorted(range(len(pooled.spaces)), key=lambda number: pooled.spaces[number].cost_per_byte)
    places: dict[int, Place] = {}
    sizes: dict[int, tuple[int, ...]] = {}
    for position, number in enumerate(order):
        later = set(order[position + 1 :])
        room = _Room(pooled, sections, number, packer)
        musts: set[int] = set()
        values: dict[int, Fraction] = {}
        for index, choices in enumerate(pooled.choices):
            if index in places or number not in choices:
                continue
            others = [pooled.costs[index][other] for other in choices if other in later]
            if not others:
                musts.add(index)
                continue
            buffer = pooled.problem.buffers[index]
            saving = min(others) - pooled.costs[index][number]
            price = bound.price(sections, index, number)
            steps = buffer.end - buffer.start
            values[index] = DENSITIES[density](saving, buffer.nbytes, steps, price)
        if not room.fill(musts, values, inserts=inserts):
            return None
        for index, arena, offset in zip(room.members, room.packing.arenas, room.packing.offsets, strict=True):
            places[index] = Place(number, arena, offset)
        sizes[number] = room.packing.arena_bytes
    placed = tuple(places[index] for index in range(len(pooled)))
    cost = sum(costs[place.space] for costs, place in zip(pooled.costs, placed, strict=True))
    return PooledLayout(placed, tuple(sizes[number] for number in range(len(order))), cost)


class _Room:
    """One space while it is filled.

    Attributes:
        members: the buffers in it, ascending.
        packing: their layout.
    """

    def __init__(
        self, pooled: PooledProblem, sections: SectionLoads, number: int, packer: SpacePacker
    ) -> None:
        self._pooled = pooled
        self._sections = sections
        self._number = number
        self._packer = packer
        self._space = pooled.spaces[number]
        self.members: list[int] = []
        self.packing = Packing((), (), ())

    def fill(self, musts: set[int], values: dict[int, Fraction], *, inserts: bool) -> bool:
        """Choose buffers and lay them out; False where those that must be here find no layout.

        Args:
            musts: buffers without another choice.
            values: what the others are worth.
            inserts: as of `fill_spaces`.
        """
        capacity = self._space.capacity_bytes
        best_first = sorted(values, key=lambda index: (-values[index], index))
        if capacity is None:
            return self._pack([*musts, *values])
        loads = self._sections.of([*musts, *(() if inserts else values)])
        chosen = set(musts)
        if inserts:
            for index in best_first:
                if self._sections.has_room(loads, index, capacity):
                    chosen.add(index)
                    self._sections.change(loads, index, 1)
        else:
            chosen |= values.keys()
            while int(loads.max(initial=0)) > capacity:
                if not self._evict(chosen, values, loads, 1):
                    return False
        count = 1
        while not self._pack(list(chosen)):
            if not self._evict(chosen, values, loads, count):
                return False
            count *= 2
        self._put_back([index for index in best_first if index not in chosen], loads)
        return True

    def _evict(self, chosen: set[int], values: dict[int, Fraction], loads: Ints, count: int) -> bool:
        """Take out the buffers worth least at the fullest step that has any; False where none has."""
        for section in (-loads).argsort(kind="stable").tolist():
            there = [i for i in chosen if i in values and self._sections.covers(i, section)]
            if there:
                for index in sorted(there, key=lambda i: (values[i], i))[:count]:
                    chosen.remove(index)
                    self._sections.change(loads, index, -1)
                return True
        return False

    def _put_back(self, left: list[int], loads: Ints) -> None:
        """Add what fits into a hole, then what fits when everything is laid out anew; the best first."""
        capacity = self._space.capacity_bytes
        assert capacity is not None
        left = self._fill_holes(left, loads, capacity)
        for index in [index for index in left if self._sections.has_room(loads, index, capacity)][
            : SETTINGS.repacked
        ]:
            if self._packer.guard.check_now() is not None:
                return
            if self._sections.has_room(loads, index, capacity) and self._pack([*self.members, index]):
                self._sections.change(loads, index, 1)

    def _fill_holes(self, left: list[int], loads: Ints, capacity: int) -> list[int]:
        """Add what fits beside the layout as it is; returns the others. Only into a single arena."""
        if self._space.max_arena_bytes is not None or not left:
            return left
        everyone = [*self.members, *left]
        shelf = Shelf(self._pooled.part(self._number, everyone))
        for at, offset in enumerate(self.packing.offsets):
            shelf.put(at, offset)
        others = []
        for at, index in enumerate(left, start=len(self.members)):
            size = self._pooled.problem.buffers[index].nbytes
            fits = self._sections.has_room(loads, index, capacity)
            offset = shelf.find(at, Fit.FIRST) if fits else capacity
            if offset + size > capacity:
                others.append(index)
                continue
            shelf.put(at, offset)
            self._sections.change(loads, index, 1)
        offsets = dict(zip(everyone, shelf.offsets, strict=True))
        self.members = sorted(set(everyone) - set(others))
        problem = self._pooled.part(self._number, self.members)
        self.packing = Packing.of(Layout.of(problem, tuple(offsets[index] for index in self.members)))
        return others

    def _pack(self, members: Iterable[int]) -> bool:
        """Lay buffers out; False, with the layout before kept, where none is found."""
        found = self._packer.pack(self._number, members)
        if found is None:
            return False
        self.members, self.packing = sorted(members), found
        return True

"""Layouts over several memory spaces: a cheap choice of spaces for which every space has a layout.

Spaces are filled one after another, the cheapest for a byte first. Where bytes do not fit at some step, or no layout is found,
the live buffer that is worth least goes to a later space. In the end every buffer that
fits a faster space after all is put back there. What a buffer is worth is its saving for the price of its bytes, for its bytes
times its steps, or by itself; first as it is, then with noise. The cheapest answer is kept.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Final

from neaptide.layout.best_layout import best_layout
from neaptide.layout.bounds import live_bytes
from neaptide.layout.placement import Fit, Shelf, by_life, by_size, fixed_shelf, place_below, program_order
from neaptide.layout.pools.bounds import CostBound, SectionLoads, cost_bound, excluded_space
from neaptide.layout.pools.spaces import Place, PooledLayout, PooledProblem, check_pooled_layout
from neaptide.layout.problem import ANYWHERE, LIMIT, Ints, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason

_ROUNDS: Final = 3  # of the three ways, each with all buffers at first and with none
_NOISE: Final = 400  # thousandths, from the second round on
_REPACKED: Final = 8  # buffers for which a space is laid out anew to put them back
_SEARCHES: Final = 3  # in each space: what they find is seldom more than a few buffers
_NODES: Final = 2_000  # of each of them, beyond one for each buffer: tenths of a second


def place_in_spaces(
    pooled: PooledProblem, limits: Limits | None = None, interrupt: threading.Event | None = None
) -> Outcome[PooledLayout]:
    """A place for every buffer, at little cost. Anytime: the first way to fill the spaces always runs to its end.

    A unit of work is one buffer laid out once; under a work limit alone the answer is the same everywhere.

    Returns:
        `OPTIMAL` where the cost meets the lower bound, else `FEASIBLE`. `INFEASIBLE` only where bytes at one step
        prove it; `NO_SOLUTION_FOUND` proves nothing. `best` and `bound` are costs.
    """
    guard = LimitGuard(limits or Limits(), interrupt)
    sections = SectionLoads(pooled.problem)
    reason = excluded_space(pooled, sections)
    if reason is not None:
        return Outcome(None, Termination(TerminationReason.INFEASIBLE, detail=reason), guard.seconds())
    bound = cost_bound(pooled, sections)
    packer = _Packer(pooled, guard)
    best: PooledLayout | None = None
    for worths, inserts in _worths(pooled, sections, bound, guard.limits.seed):
        found = _fill_spaces(pooled, sections, packer, worths, inserts=inserts)
        if found is not None and (best is None or found.cost < best.cost):
            check_pooled_layout(pooled, found)
            best = found
        if best is not None and best.cost <= bound.cost:
            break
        if guard.exhausted(len(pooled)) is not None or guard.check_now() is not None:
            break
    cost = None if best is None else best.cost
    detail = "" if best is not None else "no way to fill the spaces leaves every buffer a place"
    return guard.finish(best, best=cost, bound=bound.cost, detail=detail)


def _worths(
    pooled: PooledProblem, sections: SectionLoads, bound: CostBound, seed: int
) -> Iterator[tuple[list[list[Fraction]], bool]]:
    """By space and buffer, what a saving there is multiplied by, and whether spaces begin empty. Exact: ties are many."""
    draw = random.Random(seed)  # noqa: S311 - a reproducible stream, no secret
    buffers, spaces = pooled.problem.buffers, range(len(pooled.spaces))
    areas = [Fraction(1, buffer.nbytes * (buffer.end - buffer.start)) for buffer in buffers]
    prices = [
        [Fraction(1, bound.price(sections, index, space) + 1) for index in range(len(buffers))]
        for space in spaces
    ]
    ways = prices, [areas] * len(spaces), [[Fraction(1)] * len(buffers)] * len(spaces)
    for number, way, inserts in product(range(_ROUNDS), ways, (False, True)):
        noise = [1000 + (draw.randint(-_NOISE, _NOISE) if number else 0) for _ in buffers]
        yield [[worth * factor for worth, factor in zip(row, noise, strict=True)] for row in way], inserts


def _fill_spaces(
    pooled: PooledProblem,
    sections: SectionLoads,
    packer: _Packer,
    worths: list[list[Fraction]],
    *,
    inserts: bool,
) -> PooledLayout | None:
    """None where what must be in a space finds no layout there, which proves nothing. O(n^2) for each layout tried."""
    order = sorted(range(len(pooled.spaces)), key=lambda number: pooled.spaces[number].cost_per_byte)
    places: dict[int, Place] = {}
    sizes: dict[int, tuple[int, ...]] = {}
    for position, number in enumerate(order):
        later = set(order[position + 1 :])
        room = _Room(pooled, sections, number, packer)
        musts: list[int] = []
        values: dict[int, Fraction] = {}
        for index, choices in enumerate(pooled.choices):
            if index in places or number not in choices:
                continue
            others = [pooled.costs[index][other] for other in choices if other in later]
            if others:
                values[index] = (min(others) - pooled.costs[index][number]) * worths[number][index]
            else:
                musts.append(index)
        if not room.fill(musts, values, inserts=inserts):
            return None
        for index, arena, offset in zip(room.members, room.packing.arenas, room.packing.offsets, strict=True):
            places[index] = Place(number, arena, offset)
        sizes[number] = room.packing.arena_bytes
    placed = tuple(places[index] for index in range(len(pooled)))
    cost = sum(costs[place.space] for costs, place in zip(pooled.costs, placed, strict=True))
    return PooledLayout(placed, tuple(sizes[number] for number in range(len(order))), cost)


@dataclass(frozen=True, slots=True)
class Packing:
    """Buffers in the arenas of one space: by buffer its arena and its offset there, and by arena its size."""

    arenas: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    arena_bytes: tuple[int, ...] = ()

    @staticmethod
    def of(layout: Layout) -> Packing:
        """One arena, or none for no buffer."""
        count = len(layout.offsets)
        return Packing((0,) * count, layout.offsets, (layout.arena_bytes,) if count else ())


class _Room:
    """One space while it is filled: the buffers in it, ascending, and their layout."""

    def __init__(self, pooled: PooledProblem, sections: SectionLoads, number: int, packer: _Packer) -> None:
        self._pooled, self._sections, self._packer = pooled, sections, packer
        self._number = number
        self.members: list[int] = []
        self.packing = Packing()

    def fill(self, musts: list[int], values: dict[int, Fraction], *, inserts: bool) -> bool:
        """Choose buffers and lay them out; False where those that must be here find no layout.

        What is worth most is put in one by one (`inserts`), or what is worth least is taken out of everything.
        """
        capacity = self._pooled.spaces[self._number].capacity_bytes
        if capacity is None:
            return self._pack([*musts, *values])
        best_first = sorted(values, key=lambda index: (-values[index], index))
        chosen = {*musts, *(() if inserts else values)}
        loads = self._sections.of(chosen)
        for index in best_first if inserts else ():
            if self._sections.has_room(loads, index, capacity):
                chosen.add(index)
                self._sections.change(loads, index, 1)
        while int(loads.max(initial=0)) > capacity:
            if not self._evict(chosen, values, loads, 1):
                return False
        count = 1
        while not self._pack(chosen):
            if not self._evict(chosen, values, loads, count):
                return False
            count *= 2
        left = self._fill_holes([index for index in best_first if index not in chosen], loads, capacity)
        fitting = [index for index in left if self._sections.has_room(loads, index, capacity)]
        for index in fitting[:_REPACKED]:
            if self._packer.guard.check_now() is not None:
                break
            if self._sections.has_room(loads, index, capacity) and self._pack([*self.members, index]):
                self._sections.change(loads, index, 1)
        return True

    def _evict(self, chosen: set[int], values: dict[int, Fraction], loads: Ints, count: int) -> bool:
        """Take out the buffers worth least at the fullest step that has any; False where none has."""
        for section in (-loads).argsort(kind="stable").tolist():
            there = [i for i in chosen if i in values and self._sections.covers(i, section)]
            for index in sorted(there, key=lambda i: (values[i], i))[:count]:
                chosen.remove(index)
                self._sections.change(loads, index, -1)
            if there:
                return True
        return False

    def _fill_holes(self, left: list[int], loads: Ints, capacity: int) -> list[int]:
        """Add what fits beside the layout as it is; returns the others. Only into a single arena."""
        if self._pooled.spaces[self._number].max_arena_bytes is not None or not left:
            return left
        everyone = [*self.members, *left]
        shelf = Shelf(self._pooled.part(self._number, everyone))
        for at, offset in enumerate(self.packing.offsets):
            shelf.put(at, offset)
        others = []
        for at, index in enumerate(left, start=len(self.members)):
            fits = self._sections.has_room(loads, index, capacity)
            offset = shelf.find(at, Fit.FIRST) if fits else capacity
            if offset + self._pooled.problem.buffers[index].nbytes > capacity:
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
        wanted = tuple(sorted(members))
        found = self._packer.pack(self._number, wanted)
        if found is None:
            return False
        self.members, self.packing = list(wanted), found
        return True


class _Packer:
    """Lays sets of buffers out in the spaces of a problem, by rules and a few times by search, and remembers them.

    The guard is charged with every buffer that is laid out and every node of a search.
    """

    def __init__(self, pooled: PooledProblem, guard: LimitGuard) -> None:
        self._pooled = pooled
        self.guard = guard
        self._known: dict[tuple[int, tuple[int, ...]], Packing | None] = {}
        self._searches: Counter[int] = Counter()

    def pack(self, space: int, members: tuple[int, ...]) -> Packing | None:
        """A layout of some buffers, ascending, within a space; None proves nothing."""
        key = space, members
        if key not in self._known:
            self._known[key] = self._find(space, members)
        return self._known[key]

    def _find(self, space: int, members: tuple[int, ...]) -> Packing | None:
        self.guard.exhausted(len(members))
        problem = self._pooled.part(space, members)
        capacity, most = self._pooled.spaces[space].capacity_bytes, self._pooled.spaces[space].max_arena_bytes
        limits = [limit for limit in (capacity, most) if limit is not None]
        packing = pack_by_rules(problem, capacity, most)
        return packing or (self._search(space, problem, min(limits)) if limits else None)

    def _search(self, space: int, problem: LayoutProblem, limit: int) -> Packing | None:
        """One arena by an exact search that ends early."""
        if self._searches[space] == _SEARCHES or live_bytes(problem) > limit:
            return None
        self._searches[space] += 1
        most = len(problem) + _NODES
        if self.guard.limits.work is not None:
            most = min(most, max(0, self.guard.limits.work - self.guard.work))
        limits = Limits(self.guard.remaining_s(), most, self.guard.limits.seed)
        found = best_layout(problem, limits, capacity_bytes=limit, methods=("size_first", "dive", "valley"))
        self.guard.exhausted(min(found.work, most))
        layout = None if found.value is None else found.value.layout
        return None if layout is None else Packing.of(layout)


def pack_by_rules(problem: LayoutProblem, capacity: int | None, max_arena: int | None) -> Packing | None:
    """The first single arena within the limits that a rule makes, else the smallest set of arenas; None proves nothing.

    O(n^2) for each rule, vectorised. Buffers go to the first arena with room for them, as in bin packing; fixed ones to
    the first of all.

    `capacity` is of all arenas together, `max_arena` of each; no buffer is larger.
    """
    limit = min((limit for limit in (capacity, max_arena) if limit is not None), default=LIMIT)
    size, life, program = by_size(problem), by_life(problem), program_order(problem)
    # They meet the bound on most training graphs, the best first.
    rules = (
        (size, Fit.FIRST),
        (size, Fit.BEST),
        (life, Fit.BEST),
        (program, Fit.FIRST),
        (program, Fit.BEST),
        (life, Fit.FIRST),
    )
    if live_bytes(problem) <= limit:
        for order, fit in rules:
            layout = place_below(problem, order, fit, limit + 1)
            if layout is not None:
                return Packing.of(layout)
    if max_arena is None:
        return None
    found = [_fill_arenas(problem, order, fit, max_arena) for order, fit in rules]
    best = min(found, key=lambda packing: sum(packing.arena_bytes))
    return best if capacity is None or sum(best.arena_bytes) <= capacity else None


def _fill_arenas(problem: LayoutProblem, order: Sequence[int], fit: Fit, limit: int) -> Packing:
    shelves = [fixed_shelf(problem)] if len(problem) else []
    tops = [max((b.offset + b.nbytes for b in problem.buffers if b.offset is not None), default=0)]
    arenas = [0] * len(problem)
    offsets = [0 if offset == ANYWHERE else offset for offset in problem.fixed.tolist()]
    for index in order:
        if problem.fixed[index] != ANYWHERE:
            continue
        size = problem.buffers[index].nbytes
        found = [shelf.find(index, fit) for shelf in shelves]
        number = next((at for at, offset in enumerate(found) if offset + size <= limit), len(shelves))
        if number == len(shelves):
            shelves.append(Shelf(problem))
            tops.append(0)
            found.append(0)
        shelves[number].put(index, found[number])
        arenas[index], offsets[index] = number, found[number]
        tops[number] = max(tops[number], found[number] + size)
    return Packing(tuple(arenas), tuple(offsets), tuple(tops[: len(shelves)]))

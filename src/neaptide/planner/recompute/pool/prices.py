"""Which repetitions a pool lacks, by the prices of bytes at each moment (column generation).

The multipliers of a program over a pool say what a byte costs at each moment. Where a storage lies idle across dear
moments, recomputing it may pay: in front of its next reader, or while an operand of its maker is still there. Operands
that are gone by then are held or recomputed in turn, whichever is cheaper at these prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from neaptide.linear.tolerances import HALF, NOTHING
from neaptide.planner.recompute.pool.pool import Item, RepetitionPool
from neaptide.planner.recompute.pool.program import PoolAnswer

# Operands after one another that are recomputed for one item, each a call deeper, and stages that a block may move to
# the front.
_FURTHEST: Final = 50


class RepetitionPrices:
    """Prices of one answer."""

    def __init__(self, pool: RepetitionPool, answer: PoolAnswer) -> None:
        self._pool = pool
        self._values = answer.values
        self._units = pool.units
        self._sum = np.concatenate(([0.0], np.cumsum(answer.prices))).tolist()
        self._known: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {}
        self._lives = {s: self._life(s) for s in pool.stretches}

    def missing(self, most: int, slack: float = 1.0) -> list[Item]:
        """Items that the pool lacks and that pay at these prices, best first, with what they need themselves.

        What costs `slack` times what it saves still counts as paying. O(stretches x operands), and as much again for the
        chains of what is found.
        """
        offers = []
        for (stage, unit), saved in self._idle().items():
            cost, units = self._made(stage, unit, slack * saved)
            if units:
                offers.append((cost - saved, stage, units))
        offers.sort()
        found: dict[Item, None] = {}
        for _, stage, units in offers:
            waiting = list(units)
            while waiting:
                unit = waiting.pop()
                if len(found) >= most:
                    return list(found)
                if (stage, unit) in found or not self._is_new(stage, unit):
                    continue
                found[stage, unit] = None
                # What it reads has a reader more from now on, and may be worth recomputing for it.
                for storage in self._units.units[unit].reads:
                    maker = self._units.unit_of[storage]
                    if (stage, maker) not in found and self._is_new(stage, maker):
                        saved = self._held_until(storage, stage)
                        waiting.extend(self._made(stage, maker, slack * saved)[1])
        return list(found)

    def shifted(self, profile: Sequence[float]) -> list[Item]:
        """Items at stages before their own at which less is live: room for what they need meanwhile; highest first."""
        pool = self._pool
        at_first = [profile[k] for k in pool.first_moment[:-1]]
        blocks: dict[int, list[int]] = {}
        for number, (stage, _) in enumerate(pool.items):
            if self._values[number] > NOTHING:
                blocks.setdefault(stage, []).append(number)
        heights = {
            stage: max(profile[int(pool.item_moment[n])] for n in numbers)
            for stage, numbers in blocks.items()
        }
        found: dict[Item, None] = {}
        for stage in sorted(heights, key=lambda stage: (-heights[stage], stage)):
            for earlier in _lower_before(at_first, stage):
                units = (pool.items[n][1] for n in blocks[stage])
                found.update(((earlier, u), None) for u in units if self._is_new(earlier, u))
        return list(found)

    def _is_new(self, stage: int, index: int) -> bool:
        unit = self._units.units[index]
        return unit.first <= stage <= unit.last and self._pool.number_of((stage, index)) < 0

    def _life(self, storage: int) -> list[tuple[int, int, float, int]]:
        """Stretches with their first moment less one, last moment, share and stage."""
        values = self._values
        return [
            (s.start, s.end, float(values[s.variable]) if s.variable >= 0 else float(s.is_always), s.stage)
            for s in self._pool.stretches[storage]
        ]

    def _price(self, first: int, last: int) -> float:
        """Seconds per byte from one moment to another, both included."""
        return self._sum[last + 1] - self._sum[first] if last >= first else 0.0

    def _before(self, stage: int) -> int:
        """The moment directly before a stage's first execution."""
        return self._pool.first_moment[stage] - 1

    def _idle(self) -> dict[Item, float]:
        """By item that could end an idle stretch of storages, seconds that their bytes cost there."""
        units = self._units
        saved: dict[Item, float] = {}
        for storage, life in self._lives.items():
            size = units.step.storage_bytes[storage]
            index = units.unit_of[storage]
            if not size or units.units[index].first > units.units[index].last:
                continue
            for start, end, share, stage in life:
                if share < NOTHING or self._sum[end + 1] <= self._sum[start + 1]:
                    continue
                until = min(stage, len(units.order))
                if self._is_new(until, index):
                    price = share * size * self._price(start + 1, self._before(until))
                    saved[until, index] = saved.get((until, index), 0.0) + price
                # While an operand is still there, too.
                for operand in units.units[index].reads:
                    for _, last, there, at in self._lives[operand]:
                        if there > HALF and start < last < end and self._is_new(at, index):
                            price = share * size * self._price(start + 1, self._before(at))
                            saved[at, index] = max(saved.get((at, index), 0.0), price)
        return {item: price for item, price in saved.items() if price > 0.0}

    def _made(self, stage: int, index: int, most: float) -> tuple[float, tuple[int, ...]]:
        """Seconds of recomputing a unit, and the units that this takes, itself first; none when it costs too much."""
        unit = self._units.units[index]
        seconds = unit.seconds
        needed = [index]
        for operand in unit.reads:
            if seconds >= most:
                break
            more, units = self._have(operand, stage, _FURTHEST)
            seconds += more
            needed.extend(units)
        return seconds, tuple(dict.fromkeys(needed)) if seconds < most else ()

    def _held_until(self, storage: int, stage: int) -> float:
        """Seconds that a storage's bytes cost from its last node before a stage to there."""
        moment = self._before(stage)
        for start, end, share, _ in self._lives[storage]:
            if start < moment <= end and share > NOTHING:
                return self._units.step.storage_bytes[storage] * self._price(start + 1, moment)
        return 0.0

    def _have(self, storage: int, stage: int, depth: int) -> tuple[float, tuple[int, ...]]:
        """Least seconds for a storage to be there at a stage, and the units that run again for that."""
        key = (storage, stage)
        if key in self._known:
            return self._known[key]
        moment = self._before(stage)
        last = -1
        for start, end, share, _ in self._lives[storage]:
            if start >= moment:
                break
            # The creator's own moment counts: a storage is there when it has been made.
            last = max(last, min(end, moment) if share > HALF else start if last < 0 else last)
        if last >= moment:
            self._known[key] = 0.0, ()
            return self._known[key]
        held = self._units.step.storage_bytes[storage] * self._price(last + 1, moment)
        best: tuple[float, tuple[int, ...]] = held, ()
        index = self._units.unit_of[storage]
        unit = self._units.units[index]
        if depth and held > 0.0 and unit.first <= stage <= unit.last:
            number = self._pool.number_of((stage, index))
            share = float(self._values[number]) if number >= 0 else 0.0
            seconds = unit.seconds * (1.0 - share)
            needed = [] if number >= 0 else [index]
            for operand in unit.reads:
                if seconds >= held:
                    break
                more, units = self._have(operand, stage, depth - 1)
                seconds += more
                needed.extend(units)
            if seconds < held:
                best = seconds, tuple(dict.fromkeys(needed))
        self._known[key] = best
        return best


def _lower_before(profile: Sequence[float], stage: int) -> list[int]:
    """Stages before one at which less is live than at all between, nearest first."""
    found: list[int] = []
    lowest = float("inf")
    for earlier in range(stage - 1, max(stage - _FURTHEST, 0) - 1, -1):
        here = profile[earlier]
        if here < lowest:
            lowest = here
            if earlier == 0 or profile[earlier - 1] >= here:
                found.append(earlier)
    return found

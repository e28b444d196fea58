"""Optimal persistent plans of a chain of blocks: what to hold, what to recompute, by dynamic programming.

After Beaumont, Herrmann, Pallez and Shilova 2020 (rotor), with several options for a block as in Zhao et al. 2023
(Rockmate). `best(a, b, m)` is the least time to bring blocks a to b from "their input is there" to "their backward
is done" with m bytes beside that input; first runs cost nothing. Either block a holds one of its options until its backward comes, or the
chain is cut: run forward to j, hold only what enters j, finish j to b, then begin again at a. Plans are persistent:
what is held stays until its own backward. A stretch that ends with the last block runs for the first time, every other
one runs again; what leaves it may still be there from then, or be gone as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
_State: TypeAlias = tuple[int, int, bool]
_Stretch: TypeAlias = tuple[int, int, bool, int]
_CUT: Final = -1


@dataclass(frozen=True, slots=True)
class Option:
    """One way of holding a part of what a block makes. No bytes count what enters the block."""

    kept: frozenset[int]  # creators of the units held from its forward to its backward
    nbytes: int  # of these and of what leaves the block
    forward_s: float  # of making them from what enters the block
    backward_s: float  # of recomputing the rest in the backward
    forward_peak_bytes: int
    backward_peak_bytes: int  # highest bytes of its backward, with everything else live then

    @property
    def charges(self) -> tuple[float, ...]:
        """All of which less is better, beside the bytes that are held."""
        return self.backward_s, self.forward_s, self.backward_peak_bytes, self.forward_peak_bytes


@dataclass(frozen=True, slots=True)
class ChainCosts:
    """A chain as the program sees it, by block, or by pair of blocks."""

    options: tuple[tuple[Option, ...], ...]  # for a forward that goes on to the next block
    # Seconds and peak of a backward that finds nothing but what enters: what leaves is gone, or it is there.
    again: tuple[tuple[tuple[float, int], tuple[float, int]], ...]
    # By pair (a, b), bytes of the backward of block b that leave it and do not enter block a.
    leaving_bytes: tuple[tuple[int, ...], ...]
    # By pair (a, j), bytes entering block j that do not enter block a.
    entering_bytes: tuple[tuple[int, ...], ...]
    again_s: tuple[float, ...]  # of making what leaves it from what enters it
    forward_peak_bytes: tuple[int, ...]  # while it runs without holding anything, without what enters it
    before_bytes: tuple[int, ...]  # what is live besides before its backward begins


@dataclass(frozen=True, slots=True)
class Hold:
    """Something held: `option` of block `block`, or what enters it (None), for the backwards of `first` to `last`."""

    block: int
    option: int | None
    first: int
    last: int


class ChainProgram:
    """The solved program; one table answers every budget up to the one that it was made for.

    O(slots x blocks^2 x (blocks + options)) time, O(slots x blocks^2) space. Sizes are rounded up to slots, so a
    plan may be missed but none is promised too little room.
    """

    def __init__(self, costs: ChainCosts, most_bytes: int, slots: int) -> None:
        self.costs = costs
        self.slot_bytes = max(-(-most_bytes // slots), 1)
        self.slots = most_bytes // self.slot_bytes
        length = len(costs.options)
        self._best: dict[_State, Floats] = {}
        self._choice: dict[_State, NDArray[np.int32]] = {}
        for width in range(length):
            for a in range(length - width):
                b = a + width
                for is_there in (False,) if b == length - 1 else (False, True):
                    self._solve(a, b, is_there)

    def seconds(self, budget_bytes: int) -> float:
        """Least seconds within a budget; infinite when there is no plan."""
        if budget_bytes < 0:
            return float("inf")
        room = min(budget_bytes // self.slot_bytes, self.slots)
        return float(self._best[0, len(self.costs.options) - 1, False][room])

    def plan(self, budget_bytes: int) -> list[Hold] | None:
        """What is held in a plan of least time; None when there is none."""
        if self.seconds(budget_bytes) == float("inf"):
            return None
        room = min(budget_bytes // self.slot_bytes, self.slots)
        return self._holds([(0, len(self.costs.options) - 1, False, room)])

    def seconds_again(self, a: int, b: int) -> Floats:
        """By slots, least seconds of bringing blocks a to b, which have run before, from input to backward."""
        return np.minimum(self._best[a, b, False], self._best[a, b, True])

    def plan_again(self, a: int, b: int, room: int) -> list[Hold]:
        """What is held in such a plan with so many slots beside the input. O(blocks)."""
        holds: list[Hold] = []
        start = self._entered(a, b, room, holds)
        return [*holds, *self._holds([start])]

    def _entered(self, a: int, b: int, room: int, holds: list[Hold]) -> _Stretch:
        """A stretch that runs again, in the better way."""
        is_there = bool(self._best[a, b, True][room] < self._best[a, b, False][room])
        if is_there:
            holds.append(Hold(b + 1, None, b, b))
        return a, b, is_there, room

    def _holds(self, waiting: list[_Stretch]) -> list[Hold]:
        """What is held in some stretches."""
        costs = self.costs
        last = len(costs.options) - 1
        holds: list[Hold] = []
        while waiting:
            a, b, is_there, room = waiting.pop()
            choice = int(self._choice[a, b, is_there][room])
            # What is recomputed in the backward of b is there only for those that follow it.
            latest = b if b == last else b - 1
            if choice <= _CUT:
                cut = -choice
                holds.append(Hold(cut, None, latest, cut))
                waiting.append(self._entered(a, cut - 1, room, holds))
                waiting.append((cut, b, is_there, room - self._up(costs.entering_bytes[a][cut])))
            elif a == b < last:
                continue
            else:
                holds.append(Hold(a, choice, latest, a))
                if a < b:
                    holds.append(Hold(a + 1, None, latest, a + 1))
                    waiting.append((a + 1, b, is_there, room - self._up(costs.options[a][choice].nbytes)))
        return holds

    def _up(self, nbytes: int) -> int:
        return -(-nbytes // self.slot_bytes)

    def _solve(self, a: int, b: int, is_there: bool) -> None:
        """All rooms of a stretch; `is_there`: what leaves it is there until its last backward."""
        costs = self.costs
        is_first = b == len(costs.options) - 1
        best = np.full(self.slots + 1, np.inf)
        choice = np.zeros(self.slots + 1, np.int32)
        self._best[a, b, is_there], self._choice[a, b, is_there] = best, choice

        def offer(found: Floats, need_bytes: int, number: int) -> None:
            low = self._up(need_bytes)
            if low <= self.slots:
                better = found[low:] < best[low:]
                best[low:][better] = found[low:][better]
                choice[low:][better] = number

        if a == b and not is_first:
            seconds, peak = costs.again[a][is_there]
            offer(np.full(self.slots + 1, seconds), peak, 0)
            return
        beside = costs.before_bytes[b] + (costs.leaving_bytes[a][b] if is_there else 0)
        for number, option in enumerate(costs.options[a]):
            seconds = option.backward_s + (0.0 if is_first else option.forward_s)
            need = max(option.backward_peak_bytes, option.forward_peak_bytes + beside)
            rest = np.zeros(self.slots + 1) if a == b else self._shifted(a + 1, b, is_there, option.nbytes)
            offer(rest + seconds, need, number)
        run = 0.0
        need = 0
        for cut in range(a + 1, b + 1):
            block = cut - 1
            run += 0.0 if is_first else costs.again_s[block]
            need = max(need, costs.entering_bytes[a][block] + costs.forward_peak_bytes[block])
            rest = self._shifted(cut, b, is_there, costs.entering_bytes[a][cut])
            found = rest + self.seconds_again(a, block) + run
            offer(found, need + beside, -cut)

    def _shifted(self, a: int, b: int, is_there: bool, nbytes: int) -> Floats:
        """The best of a stretch with so many bytes less, for all rooms."""
        by = self._up(nbytes)
        found = np.full(self.slots + 1, np.inf)
        if by <= self.slots:
            found[by:] = self._best[a, b, is_there][: self.slots + 1 - by]
        return found

"""A chain program with copies: what to hold, what to recompute, what waits on the host.

After Beaumont, Eyraud-Dubois and Shilova (POFO), "Efficient Combination of Rematerialization and Offloading for Training DNNs", NeurIPS 2021, from its
description. The first run goes through the chain once. A block holds one of its options for its backward, or some
blocks run without holding anything but what enters the next one; their backward is then a plan of rotor by itself,
which copies nothing. What is held stays on the device or waits on the host. Copies are a fluid: what is on its way out
shrinks by the rate of the link while operations run, and what must be there again does so when the backward is read
from its end. Where the two do not leave enough room, the chain waits.

The program goes through the chain with labels instead of tables: bytes are not rounded, and labels that others beat are
dropped. Where there are more than a number of them, of those that share a slot only the fastest stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.linear.arrays import Floats
from neaptide.planner.recompute.chain.program import ChainCosts, ChainProgram

_Labels: TypeAlias = NDArray[np.float64]
"""A row for each label: the columns below."""
_HELD, _GOING, _COMING, _OWN, _SECONDS, _CAME, _MOVE, _ROOM, _IS_AWAY = range(9)
_MOST_LABELS: Final = 400  # kept in front of a block
_SLOTS: Final = 256  # that the budget is cut into where there are more labels
_MOST_ROOMS: Final = 24  # that are tried for blocks of which nothing is held
_BEATEN_BY: Final = (_HELD, _GOING, _COMING, _OWN, _SECONDS)


@dataclass(frozen=True, slots=True)
class OffloadChain:
    """A chain and its links.

    Attributes:
        costs: of holding and of recomputing.
        forward_s: by block, of its first run.
        backward_s: by block, of its backward, without what is recomputed.
        out: bytes per second to the host.
        back: bytes per second from it.
    """

    costs: ChainCosts
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    out: float
    back: float


@dataclass(frozen=True, slots=True)
class Move:
    """One part of the first run.

    Attributes:
        first: block that it begins with.
        end: one past its last block.
        option: of the one block that is held; None where nothing is held but what enters `end`.
        room: slots of the chain program for the backward of blocks of which nothing is held.
        is_away: whether what it holds waits on the host.
    """

    first: int
    end: int
    option: int | None
    room: int
    is_away: bool


@dataclass(frozen=True, slots=True)
class OffloadAnswer:
    """A plan of the program.

    Attributes:
        moves: of the first run, in order.
        seconds: beyond every node once: recomputations and waiting.
    """

    moves: tuple[Move, ...]
    seconds: float


class OffloadProgram:
    """Finds the plan of least time within a budget. O(blocks x (blocks + options) x labels + blocks x labels^2)."""

    def __init__(
        self, chain: OffloadChain, again: ChainProgram, budget_bytes: int, *, most_labels: int = _MOST_LABELS
    ) -> None:
        """Take a budget.

        Args:
            chain: the chain.
            again: the solved program of the same costs, made for at least the budget.
            budget_bytes: highest bytes on the device, what the caller owns included.
            most_labels: kept in front of a block.
        """
        self.chain, self.again, self.budget = chain, again, budget_bytes
        self.most_labels = most_labels
        self.before = chain.costs.before_bytes[-1]

    def solve(self) -> OffloadAnswer | None:
        """The plan; None where there is none."""
        last = len(self.chain.forward_s) - 1
        arriving: list[list[_Labels]] = [[] for _ in range(last + 1)]
        arriving[0].append(np.zeros((1, 9)))
        kept: list[_Labels] = []
        for block in range(last + 1):
            labels = self._thinned(np.concatenate(arriving[block])) if arriving[block] else np.zeros((0, 9))
            kept.append(labels)
            if block == last or not len(labels):
                continue
            for option in range(len(self.chain.costs.options[block])):
                arriving[block + 1].extend(self._hold(block, labels, option))
            for end in range(block + 1, last + 1):
                arriving[end].extend(self._pass(block, end, labels))
        return self._best(kept)

    def _best(self, kept: list[_Labels]) -> OffloadAnswer | None:
        """The plan that ends best, read back from its last block."""
        block = len(kept) - 1
        seconds, index, option = min(
            (
                (float(ends.min(initial=np.inf)), int(ends.argmin()) if len(ends) else 0, option)
                for option in range(len(self.chain.costs.options[block]))
                for ends in (self._end(kept[block], option),)
            ),
            default=(np.inf, 0, 0),
        )
        if seconds == np.inf:
            return None
        moves = [Move(block, block + 1, option, 0, is_away=False)]
        while block:
            label = kept[block][index]
            came, number = divmod(int(label[_CAME]), self.most_labels)
            move = int(label[_MOVE])
            moves.append(
                Move(came, block, None if move < 0 else move, int(label[_ROOM]), bool(label[_IS_AWAY]))
            )
            block, index = came, number
        return OffloadAnswer(tuple(reversed(moves)), seconds)

    def _end(self, labels: _Labels, number: int) -> Floats:
        """Seconds with an option of the last block; infinite where it does not fit."""
        chain, option = self.chain, self.chain.costs.options[-1][number]
        there = labels[:, _HELD] + labels[:, _OWN]
        going, coming = labels[:, _GOING], labels[:, _COMING]
        above = np.maximum(there + going + option.forward_peak_bytes + self.before - self.budget, 0.0)
        going_on = np.maximum(going - above - chain.out * chain.forward_s[-1], 0.0)
        over = np.maximum(there + going_on + coming + option.backward_peak_bytes - self.budget, 0.0)
        leaves = np.minimum(over, going_on)
        seconds = labels[:, _SECONDS] + option.backward_s
        seconds = seconds + above / chain.out + leaves / chain.out + (over - leaves) / chain.back
        return np.asarray(np.where((above <= going) & (over - leaves <= coming), seconds, np.inf))

    def _hold(self, block: int, labels: _Labels, number: int) -> list[_Labels]:
        """A block that holds an option."""
        chain, option = self.chain, self.chain.costs.options[block][number]
        there = labels[:, _HELD] + labels[:, _OWN]
        above = np.maximum(
            there + labels[:, _GOING] + option.forward_peak_bytes + self.before - self.budget, 0.0
        )
        over = np.maximum(there + labels[:, _COMING] + option.backward_peak_bytes - self.budget, 0.0)
        fits = (above <= labels[:, _GOING]) & (over <= labels[:, _COMING])
        backward_s = chain.backward_s[block] + option.backward_s
        found = self._moved(labels, block, number)
        found[:, _SECONDS] += option.backward_s
        found[:, _SECONDS] += above / chain.out + over / chain.back
        self._drain(found, above + chain.out * chain.forward_s[block], over + chain.back * backward_s)
        return self._kept_or_away(found[fits], option.nbytes)

    def _pass(self, block: int, end: int, labels: _Labels) -> list[_Labels]:
        """Blocks of which nothing is held but what enters the next one."""
        chain, costs = self.chain, self.chain.costs
        need = max(costs.entering_bytes[block][k] + costs.forward_peak_bytes[k] for k in range(block, end))
        there = labels[:, _HELD] + labels[:, _OWN]
        above = np.maximum(there + labels[:, _GOING] + need + self.before - self.budget, 0.0)
        extra, waited, rooms = self._backwards(block, end, self.budget - there - labels[:, _COMING], labels)
        fits = (above <= labels[:, _GOING]) & np.isfinite(extra)
        found = self._moved(labels, block, -1)
        found[:, _SECONDS] += above / chain.out + extra + waited / chain.back
        found[:, _ROOM] = rooms
        forward_s, backward_s = sum(chain.forward_s[block:end]), sum(chain.backward_s[block:end])
        self._drain(found, above + chain.out * forward_s, waited + chain.back * (backward_s + extra))
        return self._kept_or_away(found[fits], costs.entering_bytes[block][end])

    def _backwards(
        self, block: int, end: int, free: Floats, labels: _Labels
    ) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """For each label, least seconds recomputed by blocks of which nothing is held, bytes waited for, and slots.

        What is to be there after it may be loaded later, which takes seconds and leaves room.
        """
        table, slot = self.again.seconds_again(block, end - 1), self.again.slot_bytes
        is_new = np.append(True, table[1:] != table[:-1])
        steps = np.flatnonzero(np.isfinite(table) & is_new)
        none = np.full(len(free), np.inf), np.zeros(len(free)), np.zeros(len(free), np.int64)
        if not len(steps) or not len(free):
            return none
        if len(steps) > _MOST_ROOMS:
            steps = steps[np.unique(np.linspace(0, len(steps) - 1, _MOST_ROOMS).astype(np.int64))]
        waits = np.maximum(steps[None, :] * slot - free[:, None], 0.0)
        seconds = np.where(
            waits <= labels[:, _COMING, None], table[steps][None, :] + waits / self.chain.back, np.inf
        )
        best = seconds.argmin(axis=1)
        rows = np.arange(len(free))
        extra = np.where(np.isfinite(seconds[rows, best]), table[steps[best]], np.inf)
        return extra, waits[rows, best], steps[best]

    def _moved(self, labels: _Labels, block: int, move: int) -> _Labels:
        found = labels.copy()
        found[:, _CAME] = block * self.most_labels + np.arange(len(labels))
        found[:, _MOVE] = move
        found[:, _ROOM] = 0.0
        return found

    def _drain(self, found: _Labels, gone: Floats, back: Floats) -> None:
        """What has been copied meanwhile, and what begins to be: what enters leaves behind its last use."""
        found[:, _GOING] = np.maximum(found[:, _GOING] - gone, 0.0) + found[:, _OWN]
        found[:, _COMING] = np.maximum(found[:, _COMING] - back, 0.0) + found[:, _OWN]

    def _kept_or_away(self, found: _Labels, nbytes: int) -> list[_Labels]:
        """What a move holds stays on the device, or waits on the host."""
        stays, away = found, found.copy()
        stays[:, _OWN], stays[:, _IS_AWAY] = 0.0, 0.0
        stays[:, _HELD] += nbytes
        away[:, _OWN], away[:, _IS_AWAY] = nbytes, 1.0
        both = [stays, away] if nbytes else [stays]
        return [labels[labels[:, _HELD] <= self.budget] for labels in both]

    def _thinned(self, labels: _Labels) -> _Labels:
        """Labels that no other one beats; of too many, the fastest of each slot."""
        labels = labels[np.lexsort([labels[:, k] for k in (_OWN, _COMING, _GOING, _HELD, _SECONDS)])]
        slot = max(self.budget / _SLOTS, 1.0)
        while len(labels) > self.most_labels:
            keys = np.ceil(labels[:, [_HELD, _GOING, _COMING, _OWN]] / slot)
            _, first = np.unique(keys, axis=0, return_index=True)
            labels = labels[np.sort(first)]
            slot *= 2.0
        own = labels[:, _BEATEN_BY]
        is_beaten = np.ones((len(own), len(own)), dtype=bool)
        for column in range(len(_BEATEN_BY)):
            is_beaten &= own[:, None, column] >= own[None, :, column]
        # Sorted: of equal ones the first stays.
        is_equal = is_beaten & is_beaten.T
        by_other = (is_beaten & ~is_equal) | np.tril(is_equal, -1)
        return labels[~by_other.any(axis=1)]

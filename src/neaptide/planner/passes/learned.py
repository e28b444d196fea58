"""Picks the state and the pass after which the lowest footprint is predicted, and learns from what the graph shows."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any, Final

from neaptide.planner.passes.archive import Archive, Entry, Move
from neaptide.planner.passes.prior import Predicted, Prior

_PRIOR_COUNT: Final = 1.0
"""Measurements of a pass on a graph that weigh as much as its prior."""
_BREADTH_EVERY: Final = 2
"""Of so many moves one is made for breadth, whatever is predicted. Without such moves a wrong prediction costs all measurements:
on held-out graphs the footprint was 1.046 times the lowest, and 1.014 with them; on held-out families 1.085 and 1.017."""
_MOVES_OF_DEPTH: Final = 2
"""Moves for breadth that a state waits for one pass deeper. On held-out graphs and families the footprint was 1.014 and 1.017 times
the lowest with 2, 1.021 and 1.034 with 0, 1.012 and 1.022 where all passes of shallow states came first."""
REACH_WEIGHT: Final = 0.1
"""Share of the gain still reachable that counts. On held-out families the footprint was 1.017 times the lowest with 0.1 and 0.25, and
1.023 with 0, 1.030 with 1: what is reachable is learned from few passes ahead."""


class LearnedStrategy:
    """Best-first on predicted value: the footprint of a state, times the direct gain of a pass, times a part of the gain still reachable.

    The prior is corrected by this graph: where the direct gain of a pass was measured, the mean of what the prior was wrong
    by, shrunk towards none, is added wherever the same pass is predicted again. Every second move is made from the state of which
    the fewest passes were measured, two more of them for each pass on the way to it; of several states, that of the fewest
    bytes. So passes without predicted gain are measured too, first those on shallow states.
    """

    def __init__(self, prior: Prior, reach_weight: float = REACH_WEIGHT, first: Sequence[str] = ()) -> None:
        """`first`: passes that are measured on the model as it is before all others."""
        self._prior = prior
        self._first = first
        self._reach_weight = reach_weight
        self._predicted: dict[Move, Predicted] = {}
        self._errors: dict[str, list[float]] = {}  # of direct gains, by pass
        self._last: Move | None = None
        self._moves = 0

    def pick(self, archive: Archive[Any]) -> Move | None:
        """The move of the lowest predicted footprint, the earliest of several. O(entries times passes)."""
        self._learn(archive)
        untried = set(archive.entries[0].untried())
        if first := next((name for name in self._first if name in untried), None):
            self._last = Move(0, first)
            return self._last
        self._moves += 1
        entries: Sequence[Entry[Any]] = [
            entry for entry in archive.entries if next(entry.untried(), None) is not None
        ]
        if entries and self._moves % _BREADTH_EVERY == 0:
            entries = [min(entries, key=_breadth)]
        moves = [
            (self._value(entry, name), Move(entry.number, name))
            for entry in entries
            for name in entry.untried()
        ]
        self._last = min(moves, key=lambda move: move[0])[1] if moves else None
        return self._last

    def _value(self, entry: Entry[Any], name: str) -> float:
        """Logarithm of the footprint that is predicted to be reached through a move."""
        predicted = self._of(Move(entry.number, name), entry)
        reach = self._reach_weight * predicted.reach
        return log(max(entry.nbytes, 1)) + predicted.direct + self._correction(name) + reach

    def _of(self, move: Move, entry: Entry[Any]) -> Predicted:
        if move not in self._predicted:
            self._predicted[move] = self._prior.predict(move.name, entry.measured.facts)
        return self._predicted[move]

    def _correction(self, name: str) -> float:
        errors = self._errors.get(name, ())
        return sum(errors) / (len(errors) + _PRIOR_COUNT)

    def _learn(self, archive: Archive[Any]) -> None:
        """Compare what was picked last with what came of it."""
        if self._last is None:
            return
        entry = archive.entries[self._last.entry]
        reached = entry.tried[self._last.name]
        after = entry.nbytes if reached is None else archive.entries[reached].nbytes
        change = log(max(after, 1) / max(entry.nbytes, 1))
        predicted = self._of(self._last, entry)
        self._errors.setdefault(self._last.name, []).append(change - predicted.direct)


def _breadth(entry: Entry[Any]) -> tuple[int, int, int]:
    """Whose turn it is of states with a pass left: the least."""
    return len(entry.tried) + _MOVES_OF_DEPTH * entry.depth, entry.nbytes, entry.number

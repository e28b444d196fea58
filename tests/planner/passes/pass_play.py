"""Spaces of passes whose every state is known, and what plain enumeration says of them."""

from __future__ import annotations

import random
from collections.abc import Mapping

from neaptide.planner.passes.features import NAMES
from neaptide.planner.passes.space import Measurement

PASSES = ("a", "b", "c", "d", "e")


class SetSpace:
    """A state is the set of passes that were applied, in whatever order. Bytes are drawn by the seed for each set.

    A pass may need another before it, and `e` never changes anything.
    """

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.seed = seed
        self.needs = {name: draw.choice((None, None, *PASSES[:place])) for place, name in enumerate(PASSES)}
        self.start = frozenset()
        self.measured: list[frozenset[str]] = []

    def after(self, state, name):
        return None if name == "e" else state | {name}

    def key(self, state):
        return "".join(sorted(state))

    def nbytes(self, state) -> int:
        return random.Random(f"{self.seed} {self.key(state)}").randint(50, 100)

    def measure(self, state):
        self.measured.append(state)
        facts = {
            name: (0.0,) * len(NAMES)
            for name, needed in self.needs.items()
            if name not in state and (needed is None or needed in state)
        }
        return Measurement(self.nbytes(state), facts, (1, 1, len(state)))

    def best_to_depth(self, depth: int) -> int:
        """By recursion over all sequences, without an archive."""

        def best(state, left: int) -> int:
            lowest = self.nbytes(state)
            if left:
                for name, needed in self.needs.items():
                    if name not in state and (needed is None or needed in state) and name != "e":
                        lowest = min(lowest, best(state | {name}, left - 1))
            return lowest

        return best(frozenset(), depth)


class TableSpace:
    """States by name, with bytes, and the passes between them as a table."""

    def __init__(self, nbytes: Mapping[str, int], edges: Mapping[tuple[str, str], str | None]) -> None:
        self.bytes_of, self.edges = nbytes, edges
        self.start = next(iter(nbytes))

    def after(self, state, name):
        return self.edges[state, name]

    def key(self, state):
        return state

    def measure(self, state):
        facts = {name: (0.0,) * len(NAMES) for start, name in self.edges if start == state}
        return Measurement(self.bytes_of[state], facts, (1, 1, 1))

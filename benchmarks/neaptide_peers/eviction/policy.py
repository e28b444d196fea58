"""Which unit to evict: the heuristics of Kirisame et al. (ICLR 2021), section 4.1 and appendix, and their peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from neaptide.errors import UsageError
from neaptide_peers.eviction.neighbourhoods import (
    ClassNeighbourhoods,
    ExactNeighbourhoods,
    Neighbourhoods,
    NoNeighbourhoods,
)
from neaptide_peers.eviction.run_state import RunState


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A score; the unit with the least is evicted.

    Attributes:
        name: what it is called.
        neighbourhoods: what else would have to run again; None: seconds do not count at all.
        by_bytes: large units first.
        by_staleness: units first that have not been accessed for long.
    """

    name: str
    neighbourhoods: Callable[[RunState], Neighbourhoods] | None
    by_bytes: bool
    by_staleness: bool


_ALL: Final = (
    Heuristic("dtr", ExactNeighbourhoods, by_bytes=True, by_staleness=True),
    Heuristic("dtr_classes", ClassNeighbourhoods, by_bytes=True, by_staleness=True),
    Heuristic("dtr_local", lambda _state: NoNeighbourhoods(), by_bytes=True, by_staleness=True),
    Heuristic(
        "evict_cheapest",
        partial(ExactNeighbourhoods, with_descendants=False),
        by_bytes=True,
        by_staleness=False,
    ),
    Heuristic("evict_largest", None, by_bytes=True, by_staleness=False),
    Heuristic("evict_oldest", None, by_bytes=False, by_staleness=True),
)
HEURISTICS: Final[Mapping[str, Heuristic]] = MappingProxyType({h.name: h for h in _ALL})
"""By name. In the paper they are h_DTR, h_DTR^eq, h_local, h_MSPS, h_size and h_LRU."""


def heuristic(name: str) -> Heuristic:
    """The heuristic of a name; `dtr-classes` and `dtr_classes` are the same.

    Raises:
        UsageError: there is none.
    """
    known = name.replace("-", "_")
    if known not in HEURISTICS:
        raise UsageError(
            f"no way to evict is called {name!r}", next_step=f"choose one of {', '.join(HEURISTICS)}"
        )
    return HEURISTICS[known]


class EvictionPolicy:
    """Scores the units of a run."""

    def __init__(self, state: RunState, chosen: Heuristic) -> None:
        self._state = state
        self._chosen = chosen
        self.neighbourhoods = (chosen.neighbourhoods or (lambda _state: NoNeighbourhoods()))(state)

    def victim(self) -> int | None:
        """The unit to evict next; None when nothing may be. O(units that are there and their neighbourhoods).

        Units whose own last use is over go first: they were recomputed only for another unit.
        """
        state = self._state
        best: tuple[bool, float, int, int] | None = None
        for unit in state.evictable:
            if state.locks[unit]:
                continue
            nbytes = state.bytes_there(unit)
            if nbytes:
                rank = (state.holds_wanted(unit), self._score(unit, nbytes), -nbytes, unit)
                if best is None or rank < best:
                    best = rank
        return None if best is None else best[3]

    def _score(self, unit: int, nbytes: int) -> float:
        chosen, state = self._chosen, self._state
        score = 1.0
        if chosen.neighbourhoods is not None:
            score = state.cost[unit] + self.neighbourhoods.seconds(unit)
        if chosen.by_bytes:
            score /= nbytes
        if chosen.by_staleness:
            stale = state.clock - state.last_access[unit]
            if stale <= 0:
                return float("inf")
            score /= stale
        return score

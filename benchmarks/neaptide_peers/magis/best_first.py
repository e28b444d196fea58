"""Best first over states, anytime (Chen et al., MAGIS, ASPLOS 2024, section 6).

A state that is taken from the queue yields all states one move away. Those that have been seen are left out by their digest;
the others are simulated, and queued where they are at most `relaxation` times as bad as the best one. As in the release
(`RelaxOptimizer`), what is queued is ranked by the limit first, then by the objective.

Where simulation is not exact, a state is checked when it is taken from the queue, and the best is the best that was checked: the
release measures such states on the device.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from neaptide.errors import RewriteError, UsageError
from neaptide.outcome import LimitGuard
from neaptide_peers.magis.moves import next_parts, next_states
from neaptide_peers.magis.simulate import Simulated, Simulator
from neaptide_peers.magis.state import State

RELAXATION: Final = 1.1

Key = tuple[float, float]


class Counted(Protocol):
    """What a state takes."""

    @property
    def peak_bytes(self) -> int: ...

    @property
    def seconds(self) -> float: ...


Checker = Callable[[State], Counted | None]
"""What a state takes by an exact count; None where it cannot be."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is searched for: one of both limits.

    Attributes:
        longest_s: seconds within which the lowest peak is wanted.
        most_bytes: peak within which the least time is wanted.
    """

    longest_s: float | None = None
    most_bytes: int | None = None

    def __post_init__(self) -> None:
        if (self.longest_s is None) == (self.most_bytes is None):
            raise UsageError("a search of MAGIS has one limit", next_step="give seconds or bytes")

    def key(self, found: Counted) -> Key:
        """Lower is better: what is beyond the limit, then what is asked for."""
        if self.longest_s is not None:
            return (found.seconds if found.seconds > self.longest_s else 0.0), float(found.peak_bytes)
        assert self.most_bytes is not None
        return (float(found.peak_bytes) if found.peak_bytes > self.most_bytes else 0.0), found.seconds


class BestFirst:
    """One search.

    Args:
        simulator: of the step.
        wanted: what is searched for.
        guard: of the limits; work is states simulated and states checked.
        relaxation: how much worse than the best a state may be to be looked at.
        checker: counts a state that is taken from the queue; None where simulation is exact.
        by_score: of states of one rank, those whose outermost regions have the highest scores come first. Captured programs
            have many such: of regions inside the forward, most bytes leave for the backward.
    """

    def __init__(
        self,
        simulator: Simulator,
        wanted: Wanted,
        guard: LimitGuard,
        relaxation: float = RELAXATION,
        check: Checker | None = None,
        *,
        by_score: bool = False,
    ) -> None:
        self.simulator, self.wanted, self.guard, self.relaxation = simulator, wanted, guard, relaxation
        self.check, self.by_score = check, by_score
        self.dropped = 0  # states that cannot be
        self.draw = random.Random(guard.limits.seed)
        self.state = State()
        first = simulator.run(self.state)
        self.best: Counted = first
        self.seen = {self.state.digest}
        self.queue: list[tuple[Key, float, float, State, Simulated]] = []
        self._push(self.state, first)

    def begin_with(self, state: State) -> None:
        """Look at a state whatever leads to it."""
        if state.digest not in self.seen and self.guard.exhausted() is None:
            self.seen.add(state.digest)
            self._look_at(state)

    def run(self, *, parts_only: bool) -> None:
        """Until nothing is left, or the limits are reached."""
        while self.queue:
            *_, state, simulated = heapq.heappop(self.queue)
            if (
                self.check is not None
                and state.digest != State().digest
                and not self._checked(self.check, state)
            ):
                return
            if parts_only:
                near = next_parts(self.simulator, state)
            else:
                near = next_states(self.simulator, state, simulated)
            for found in near:
                if found.digest in self.seen:
                    continue
                if self.guard.exhausted() is not None:
                    return
                self.seen.add(found.digest)
                self._look_at(found)

    def _checked(self, check: Checker, state: State) -> bool:
        """Have a state checked; False where the limits are reached."""
        if self.guard.check_now() is not None or self.guard.exhausted() is not None:
            return False
        counted = check(state)
        if counted is None:
            self.dropped += 1
        else:
            self._take(state, counted)
        return True

    def _take(self, state: State, counted: Counted) -> None:
        if self.wanted.key(counted) < self.wanted.key(self.best):
            self.state, self.best = state, counted

    def _look_at(self, state: State) -> None:
        try:
            simulated = self.simulator.run(state)
        except RewriteError:
            self.dropped += 1
            return
        if self.check is None:
            self._take(state, simulated)
        key, best = self.wanted.key(simulated), self.wanted.key(self.best)
        if key <= (best[0] * self.relaxation, best[1] * self.relaxation):
            self._push(state, simulated)

    def _push(self, state: State, simulated: Simulated) -> None:
        score = self._score(state) if self.by_score else 0.0
        entry = (self.wanted.key(simulated), -score, self.draw.random(), state, simulated)
        heapq.heappush(self.queue, entry)

    def _score(self, state: State) -> float:
        """Of the outermost regions in parts."""
        chosen, tree = {k for k, _ in state.parts}, self.simulator.tree
        return sum(tree.regions[k].score for k in chosen if chosen.isdisjoint(tree.around(k)))

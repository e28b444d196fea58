"""MAGIS's search (Chen et al., ASPLOS 2024, section 6): best first over states, anytime.

A state that is taken from the queue yields all states one move away. Those that have been seen are left out by their digest;
the others are simulated, and queued where they are at most `relaxation` times as bad as the best one. As in the release
(`RelaxOptimizer`), what is queued is ranked by the limit first, then by the objective.

Not here: the rules of algebra (A-trans, I-trans), and ordering again by dynamic programming. The released code has no such
ordering either: it keeps to program order.
"""

from __future__ import annotations

import heapq
import random
import threading
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.corpus.recorded_steps import RecordedStep
from neaptide.errors import UsageError
from neaptide.ir.schedule import Schedule
from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.peers.magis.f_tree import LEVELS, FTree, f_tree
from neaptide.peers.magis.moves import next_parts, next_states
from neaptide.peers.magis.recorded_flat import recorded_flat_step
from neaptide.peers.magis.simulate import Simulated, Simulator
from neaptide.peers.magis.state import State

RELAXATION: Final = 1.1

Key = tuple[float, float]


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

    def key(self, found: Simulated) -> Key:
        """Lower is better: what is beyond the limit, then what is asked for."""
        if self.longest_s is not None:
            return (found.seconds if found.seconds > self.longest_s else 0.0), float(found.peak_bytes)
        assert self.most_bytes is not None
        return (float(found.peak_bytes) if found.peak_bytes > self.most_bytes else 0.0), found.seconds


@dataclass(frozen=True, slots=True)
class MagisPlan:
    """What the search found.

    Attributes:
        state: what is done to the step.
        tree: its F-tree, which `state.parts` are numbers of.
        peak_bytes: by MAGIS's conventions.
        seconds: likewise.
        seen: states that were simulated.
    """

    state: State
    tree: FTree
    peak_bytes: int
    seconds: float
    seen: int


def solve(
    step: RecordedStep,
    wanted: Wanted,
    limits: Limits,
    interrupt: threading.Event | None = None,
    *,
    levels: int = LEVELS,
    relaxation: float = RELAXATION,
    parts_only: bool = False,
) -> Outcome[MagisPlan]:
    """Search for a state. Work is states simulated; the same under the same work limit and seed.

    Args:
        step: a recorded step.
        wanted: the limit and what is asked for within it.
        limits: of the search; the seed orders states of one rank.
        interrupt: set it to get the best so far.
        levels: of the F-tree.
        relaxation: how much worse than the best a state may be to be looked at.
        parts_only: moves of the F-tree alone, as the preset `ines` of the release.
    """
    guard = LimitGuard(limits, interrupt)
    graph = step.graph
    profile = memory_profile(graph, Schedule.program_order(graph))
    tree = f_tree(graph, step.registry, [s.storage for s in profile.alive_at_peak], levels=levels)
    search = _Search(Simulator(recorded_flat_step(step), tree), wanted, guard, relaxation)
    search.run(parts_only=parts_only)
    best = search.best
    plan = MagisPlan(search.state, tree, best.peak_bytes, best.seconds, len(search.seen))
    objective = plan.peak_bytes if wanted.longest_s is not None else plan.seconds
    return guard.finish(plan, best=objective, detail=f"{plan.seen} states")


class _Search:
    def __init__(self, simulator: Simulator, wanted: Wanted, guard: LimitGuard, relaxation: float) -> None:
        self.simulator, self.wanted, self.guard, self.relaxation = simulator, wanted, guard, relaxation
        self.draw = random.Random(guard.limits.seed)  # noqa: S311 - no secrets here
        self.state = State()
        self.best = simulator.run(self.state)
        self.seen = {self.state.digest}
        self.queue: list[tuple[Key, float, State, Simulated]] = []
        self._push(self.state, self.best)

    def run(self, *, parts_only: bool) -> None:
        """Until nothing is left, or the limits are reached."""
        while self.queue:
            *_, state, simulated = heapq.heappop(self.queue)
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

    def _look_at(self, state: State) -> None:
        simulated = self.simulator.run(state)
        key, best = self.wanted.key(simulated), self.wanted.key(self.best)
        if key < best:
            self.state, self.best = state, simulated
        if key <= (best[0] * self.relaxation, best[1] * self.relaxation):
            self._push(state, simulated)

    def _push(self, state: State, simulated: Simulated) -> None:
        entry = (self.wanted.key(simulated), self.draw.random(), state, simulated)
        heapq.heappush(self.queue, entry)

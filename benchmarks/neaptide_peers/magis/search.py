"""MAGIS's search over a recorded step, by MAGIS's own count (Chen et al., ASPLOS 2024, section 6).

Not here: the rules of algebra (A-trans, I-trans), and ordering again by dynamic programming, which the search on captured
programs has (`reordered`). The released code has no such ordering either: it keeps to program order.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.schedule import Schedule
from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide_corpus.recorded_steps import RecordedStep
from neaptide_peers.magis.best_first import RELAXATION, BestFirst, Wanted
from neaptide_peers.magis.f_tree import LEVELS, FTree, f_tree
from neaptide_peers.magis.recorded_flat import recorded_flat_step
from neaptide_peers.magis.simulate import Simulator
from neaptide_peers.magis.state import State


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
    tree = f_tree(graph, step.registry, [s.storage for s in profile.live_at_peak], levels=levels)
    search = BestFirst(Simulator(recorded_flat_step(step), tree), wanted, guard, relaxation)
    search.run(parts_only=parts_only)
    best = search.best
    plan = MagisPlan(search.state, tree, best.peak_bytes, best.seconds, len(search.seen))
    objective = plan.peak_bytes if wanted.longest_s is not None else plan.seconds
    return guard.finish(plan, best=objective, detail=f"{plan.seen} states")

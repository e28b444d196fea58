"""The run of an eviction policy, written down: a sequence, its bytes and its seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neaptide.schedule.problem import StepProblem
from neaptide_peers.eviction.policy import Heuristic
from neaptide_peers.eviction.run import EvictionRun, EvictionTotals
from neaptide_peers.eviction.units import eviction_units


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What a policy would do.

    Attributes:
        sequence: node ids in running order; a repeated id is a recomputation.
        totals: of the run. Its peak can be above that of the sequence as a plan, which knows beforehand what is not
            needed before it is recomputed.
    """

    sequence: tuple[int, ...]
    totals: EvictionTotals


def simulate(
    problem: StepProblem,
    order: Sequence[int],
    chosen: Heuristic,
    budget_bytes: int,
    has_time: Callable[[], bool] = lambda: True,
) -> SimulatedRun:
    """Run a policy on a program with the bytes and seconds of its problem.

    Args:
        problem: the program.
        order: of first executions.
        chosen: what is evicted first.
        budget_bytes: highest peak with workspace.
        has_time: asked before each execution.

    Raises:
        SimulationStopped: there is no time.
    """
    run = EvictionRun(eviction_units(problem, order), chosen, budget_bytes, has_time)
    totals = run.run()
    return SimulatedRun(tuple(run.sequence), totals)

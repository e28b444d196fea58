"""The run of an eviction policy, written down instead of run: a sequence, its bytes and its seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from neaptide.errors import NeaptideError
from neaptide.schedule.problem import StepProblem
from neaptide_peers.eviction.policy import Heuristic
from neaptide_peers.eviction.run import EvictionRun, EvictionTotals, Observed
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


class SimulationStopped(NeaptideError):  # noqa: N818 - what happened is name enough
    """A simulated run was stopped from outside, so there is no sequence."""


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
    paper = _Paper(problem, has_time)
    totals = EvictionRun(eviction_units(problem, order), chosen, budget_bytes, paper).run()
    return SimulatedRun(tuple(paper.sequence), totals)


@dataclass
class _Paper:
    """A machine that writes down what it is told."""

    problem: StepProblem
    has_time: Callable[[], bool]
    sequence: list[int] = field(default_factory=list)

    def execute(self, node: int, *, again: bool) -> Observed:
        if not self.has_time():
            raise SimulationStopped("a simulated run was stopped before its end")
        self.sequence.append(node)
        problem = self.problem
        seconds = problem.repeat_seconds[node] if again else problem.seconds[node]
        return Observed(tuple(problem.storage_bytes[s] for s in problem.created[node]), seconds)

    def drop(self, storage: int) -> None:
        """Nothing to do on paper."""

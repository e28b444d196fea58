"""What is better: first the budget, then the time, then the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neaptide.planner.recompute.chain.options import KnownChains
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """A step and its budget: what every strategy is asked."""

    step: StepProblem
    budget_bytes: int
    start: tuple[int, ...] | None = None  # the order of first executions to work on; None for program order
    # Repetitions that may be good, from other plans: (node, node before whose first execution it runs again).
    known: frozenset[tuple[int, int]] = frozenset()
    enough_seconds: float = 0.0  # a plan within the budget that takes no longer need not be improved
    # Chains of blocks found in the step; problems made from one another have them in common.
    chains: KnownChains = field(default_factory=KnownChains, repr=False, compare=False)

    def first_sequence(self) -> tuple[int, ...]:
        """The order to start from."""
        return tuple(range(self.step.node_count)) if self.start is None else self.start


@dataclass(frozen=True, slots=True)
class PlannedSequence:
    """A node sequence and what it is predicted to use."""

    sequence: tuple[int, ...]  # node ids in running order; a repeated id is a recomputation
    strategy: str
    peak_bytes: int
    peak_with_workspace_bytes: int  # the same with workspace; the budget is held on it
    seconds: float

    @staticmethod
    def evaluate(step: StepProblem, sequence: Sequence[int], strategy: str) -> PlannedSequence:
        """Bytes and seconds of a sequence. O(its length)."""
        return PlannedSequence.of(Evaluator(step, sequence), strategy)

    @staticmethod
    def of(evaluator: Evaluator, strategy: str) -> PlannedSequence:
        """What an evaluator has come to."""
        peaks = evaluator.peak_without_workspace, evaluator.peak
        return PlannedSequence(evaluator.sequence(), strategy, *peaks, evaluator.seconds)

    def only_loses(self, before: PlannedSequence) -> bool:
        """Whether it takes longer than the sequence of another graph, and its peak is no lower."""
        is_lower = self.peak_with_workspace_bytes < before.peak_with_workspace_bytes
        return self.seconds > before.seconds and not is_lower

    def rank(self, budget_bytes: int) -> tuple[int, float, int, int]:
        """Lower is better: bytes above the budget, seconds, peak, number of steps."""
        peak = self.peak_with_workspace_bytes
        return max(peak - budget_bytes, 0), self.seconds, peak, len(self.sequence)

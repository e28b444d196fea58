"""What is better: first the budget, then the time, then the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from neaptide.planner.recompute.chain.options import KnownChains
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """A step and its budget: what every strategy is asked.

    Attributes:
        start: the order of first executions to work on; None for program order.
        known: (node, node before whose first execution it runs again) of repetitions that may be good, from other plans
            and from bounds; a strategy may draw on them.
        enough_seconds: a plan within the budget that takes no longer need not be improved.
        chains: chains of blocks that have been found in the step; problems made from one another by
            `dataclasses.replace` have them in common.
    """

    step: StepProblem
    budget_bytes: int
    start: tuple[int, ...] | None = None
    known: frozenset[tuple[int, int]] = frozenset()
    enough_seconds: float = 0.0
    chains: KnownChains = field(default_factory=KnownChains, repr=False, compare=False)

    def first_sequence(self) -> tuple[int, ...]:
        """The order to start from."""
        return tuple(range(self.step.node_count)) if self.start is None else self.start


@dataclass(frozen=True, slots=True)
class PlannedSequence:
    """A node sequence and what it is predicted to use.

    Attributes:
        sequence: node ids in running order; a repeated id is a recomputation.
        peak_with_workspace_bytes: the same with workspace; the budget is held on it.
    """

    sequence: tuple[int, ...]
    strategy: str
    peak_bytes: int
    peak_with_workspace_bytes: int
    seconds: float

    @staticmethod
    def evaluate(step: StepProblem, sequence: Sequence[int], strategy: str) -> PlannedSequence:
        """Bytes and seconds of a sequence. O(its length)."""
        return PlannedSequence.of(Evaluator(step, sequence), strategy)

    @staticmethod
    def of(evaluator: Evaluator, strategy: str) -> PlannedSequence:
        """What an evaluator has come to."""
        sequence = evaluator.sequence()
        return PlannedSequence(
            sequence,
            strategy,
            evaluator.peak_without_workspace,
            evaluator.peak,
            evaluator.seconds,
        )

    def rank(self, budget_bytes: int) -> tuple[int, float, int, int]:
        """Lower is better: bytes above the budget, seconds, peak, number of steps."""
        peak = self.peak_with_workspace_bytes
        return max(peak - budget_bytes, 0), self.seconds, peak, len(self.sequence)

"""What a rewrite costs: bytes and seconds of program order behind it, less those before it."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.planner.objective import PlannedSequence


@dataclass(frozen=True, slots=True)
class RewriteCost:
    """Predicted difference that a change of a graph makes; below 0 where the changed graph needs less."""

    peak_bytes: int
    seconds: float

    @property
    def only_loses(self) -> bool:
        """Whether the changed graph takes longer and its peak is no lower."""
        return self.seconds > 0.0 and self.peak_bytes >= 0


def rewrite_cost(before: PlannedSequence, after: PlannedSequence) -> RewriteCost:
    """The cost of a change, from two graphs in program order (`planner.strategies.program_order.baseline`). O(1).

    It is exact for the cost model that priced both.
    """
    return RewriteCost(
        after.peak_with_workspace_bytes - before.peak_with_workspace_bytes, after.seconds - before.seconds
    )

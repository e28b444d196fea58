"""Plans as plain data: what is saved, reviewed as a diff, judged when it is loaded, and applied elsewhere."""

from neaptide.plans.plan import (
    FORMAT,
    AssumedBytes,
    BudgetRecord,
    CapturedGraph,
    MovesSummary,
    Plan,
    PlannedProgram,
    Predictions,
    Recomputation,
    TerminationRecord,
    described_role,
)

__all__ = [
    "FORMAT",
    "AssumedBytes",
    "BudgetRecord",
    "CapturedGraph",
    "MovesSummary",
    "Plan",
    "PlannedProgram",
    "Predictions",
    "Recomputation",
    "TerminationRecord",
    "described_role",
]

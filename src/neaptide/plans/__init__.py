"""Plans as plain data: what is saved, reviewed as a diff, judged when it is loaded, and applied elsewhere.

No top-level module may have the name of a public function: importing `neaptide/plan.py` would replace `neaptide.plan`.
"""

from neaptide.plans.copies_record import CopiesRecord, StayCopies, TimedCopy
from neaptide.plans.parts_record import PartsRecord, TriedVariant
from neaptide.plans.plan import (
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
from neaptide.plans.plan_file import FORMAT
from neaptide.plans.range_peaks import PeakCurve, RangePeaks
from neaptide.plans.shapes_record import (
    AskedDim,
    DimRange,
    PlanOfShapes,
    PointsRecord,
    ShapesProgram,
    ShapesRecord,
)
from neaptide.plans.trials_record import TrialRow, TrialsRecord

__all__ = [
    "FORMAT",
    "AskedDim",
    "AssumedBytes",
    "BudgetRecord",
    "CapturedGraph",
    "CopiesRecord",
    "DimRange",
    "MovesSummary",
    "PartsRecord",
    "PeakCurve",
    "Plan",
    "PlanOfShapes",
    "PlannedProgram",
    "PointsRecord",
    "Predictions",
    "RangePeaks",
    "Recomputation",
    "ShapesProgram",
    "ShapesRecord",
    "StayCopies",
    "TerminationRecord",
    "TimedCopy",
    "TrialRow",
    "TrialsRecord",
    "TriedVariant",
    "described_role",
]

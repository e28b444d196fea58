"""Plans as plain data: what is saved, reviewed as a diff, checked when it is loaded, and applied elsewhere.

No top-level module may have the name of a public function: importing `neaptide/plan.py` would replace `neaptide.plan`.
"""

from neaptide.plans.content import check_content as check_content
from neaptide.plans.content import operations_moved as operations_moved
from neaptide.plans.content import wrong_field as wrong_field
from neaptide.plans.plan import Plan as Plan
from neaptide.plans.plan_file import FORMAT as FORMAT
from neaptide.plans.records import FASTEST as FASTEST
from neaptide.plans.records import LEAST_PEAK as LEAST_PEAK
from neaptide.plans.records import NONE_WITHIN as NONE_WITHIN
from neaptide.plans.records import STEADY as STEADY
from neaptide.plans.records import AssumedBytes as AssumedBytes
from neaptide.plans.records import BudgetRecord as BudgetRecord
from neaptide.plans.records import CapturedGraph as CapturedGraph
from neaptide.plans.records import CopiesRecord as CopiesRecord
from neaptide.plans.records import Entry as Entry
from neaptide.plans.records import MovesSummary as MovesSummary
from neaptide.plans.records import PartsRecord as PartsRecord
from neaptide.plans.records import PlannedProgram as PlannedProgram
from neaptide.plans.records import Predictions as Predictions
from neaptide.plans.records import Reason as Reason
from neaptide.plans.records import Recomputation as Recomputation
from neaptide.plans.records import StayCopies as StayCopies
from neaptide.plans.records import TimedCopy as TimedCopy
from neaptide.plans.records import TrialRow as TrialRow
from neaptide.plans.records import TrialsRecord as TrialsRecord
from neaptide.plans.records import TriedVariant as TriedVariant
from neaptide.plans.records import described_role as described_role
from neaptide.plans.records import role_of as role_of
from neaptide.plans.shapes import AskedDim as AskedDim
from neaptide.plans.shapes import PeakCurve as PeakCurve
from neaptide.plans.shapes import PlanOfShapes as PlanOfShapes
from neaptide.plans.shapes import PointCounts as PointCounts
from neaptide.plans.shapes import PointsRecord as PointsRecord
from neaptide.plans.shapes import RangePeaks as RangePeaks
from neaptide.plans.shapes import Shape as Shape
from neaptide.plans.shapes import ShapesProgram as ShapesProgram
from neaptide.plans.shapes import ShapesRecord as ShapesRecord
from neaptide.plans.shapes import range_peaks as range_peaks

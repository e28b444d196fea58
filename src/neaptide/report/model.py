"""What a report says, as plain data. The `..._text` modules make documents of it, `to_json` what `--json` writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from neaptide.plans import RangePeaks
from neaptide.runtime.arena.plan import ArenaOnTheWay, ArenaReport


@dataclass(frozen=True, kw_only=True)
class Report:
    """What every report tells: of which target, and how somebody gets the same numbers.

    It is read back from its JSON. `tests/report/test_report_conformance.py` holds each kind to this.
    """

    name: str
    versions: dict[str, str]  # of neaptide, torch and Python
    seed: int


@dataclass(frozen=True, kw_only=True)
class CapturedReport(Report):
    """A report of a captured step, with the device that costs were taken for."""

    device: str
    capture_seconds: float


@dataclass(frozen=True)
class LiveRow:
    """A storage that is live at the peak; what the caller owns is called as the user calls it."""

    name: str  # of the value that made it
    kind: str  # parameter, buffer, input, optimizer_state, gradient, activation, temporary or output
    nbytes: int
    made_at: str = ""  # `file:line` of the operation; empty for what the caller owns
    code: str = ""  # text of that line
    module: str = ""  # dotted path of the submodule


@dataclass(frozen=True)
class ShapePeak:
    """A peak at one shape: storages and workspace by formula, in program order. `sizes` are by dim."""

    sizes: dict[str, int]
    predicted_peak_bytes: int


@dataclass(frozen=True)
class LargestSize:
    """How large a dim may be, beside sizes of the other one that varies, for a step to stay within so many bytes."""

    beside: dict[str, int]
    dim: str
    end: int  # of the range that was looked at; an answer of this size may be larger in truth
    in_program_order: int | None  # None where no size fits
    with_points: (
        int | None
    )  # the largest found where storages are evicted and recomputed; None where none was
    predicted_added_time: float | None  # of recomputation at that size, as a share of the step


@dataclass(frozen=True)
class FittingShapes:
    """The largest shapes that stay within `limit_bytes`, as predicted; no rows where no dim varies.

    `curves` are peaks along the ranges, in program order and with points; None where they were not asked for.
    """

    limit_bytes: int
    rows: tuple[LargestSize, ...]
    curves: RangePeaks | None = None


@dataclass(frozen=True)
class ShapeRanges:
    """What is predicted for a range of shapes."""

    dims: tuple[str, ...]  # that vary, with their ranges
    relations: tuple[str, ...]  # equalities between sizes that hold for all shapes
    notes: tuple[str, ...]  # for which sizes the program holds, and which line asked
    peaks: tuple[ShapePeak, ...]  # at corners of the ranges
    fit: FittingShapes | None = None  # None where no limit was given
    curves: RangePeaks | None = None  # in program order; None where they were not asked for


@dataclass(frozen=True, kw_only=True)
class AtPeak:
    """What is live at the peak of storages, and the operation there."""

    bytes_by_kind_at_peak: dict[str, int]
    live_at_peak: tuple[LiveRow, ...]  # largest first
    peak_at: str  # `file:line`
    peak_module: str
    peak_phase: str


@dataclass(frozen=True, kw_only=True)
class OnDevice:
    """Whether a step fits a device; None where none was named."""

    capacity_bytes: int | None  # less what its driver keeps
    fits: bool | None  # the peak with workspace is within it
    over_bytes: int | None  # how far the peak is above; negative is room to spare
    captured_on: str = (
        ""  # kind of the device whose kernels the step was captured with; empty when it is not known
    )


@dataclass(frozen=True, kw_only=True)
class ProfileReport(AtPeak, OnDevice, CapturedReport):
    """Whether a step fits, and what stands in the way. Nothing in it was measured by running the step."""

    predicted_peak_bytes: int  # storages at the dispatcher, persistent storages included, in program order
    predicted_peak_with_workspace_bytes: int  # with the scratch that kernels allocate, where it is known
    workspace_is_known: bool  # audited on this machine; else it is by formula
    persistent_bytes: int  # parameters, buffers, optimizer state and batch: there for the whole step
    lower_bound_bytes: int  # of any plan of reordering and recomputation
    order_lower_bound_bytes: int  # of any order of these operations
    predicted_step_seconds: float  # by the cost model
    seconds_are_measured: bool  # its operations were timed here
    operations: int
    unknown_ops: tuple[str, ...]  # without a row in the op table
    rewrites: tuple[str, ...]  # what the capture changed, in words
    not_counted: tuple[str, ...]  # what no number here contains
    axes: tuple[str, ...] = ()  # what runs along the batch and other directions of the whole step, in words
    ranges: ShapeRanges | None = None  # None where no dim was said to vary


@dataclass(frozen=True)
class FitChange:
    """What the peak would be with one change."""

    name: str
    how: str  # what to write
    predicted_peak_bytes: int | None  # as the allocator counts; None where it cannot be predicted
    fits: bool | None
    predicted_time: float | None = None  # of a step, by that without the change
    note: str = ""  # why it cannot be predicted, or what else it takes


@dataclass(frozen=True, kw_only=True)
class FitReport(CapturedReport):
    """Whether a step fits a card, and what would make it fit. Nothing in it was run.

    The peak is what `torch.cuda.max_memory_allocated` counts: blocks as the caching allocator rounds them, with workspace.
    """

    capacity_bytes: int  # less what the driver keeps
    predicted_peak_bytes: int
    library_bytes: int  # of it what cuBLAS keeps for its workspace
    fits: bool
    margin_bytes: int  # below zero where it does not fit
    captured_on: str  # kind of the device whose kernels the step was captured with
    predicted_step_seconds: float
    largest: tuple[LargestSize, ...]  # the largest batch, and length, that fit
    changes: tuple[FitChange, ...]  # where it does not fit
    notes: tuple[str, ...] = ()  # what could not be found out
    not_exact: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasuredRow:
    """What one program was measured to take. A number that was not taken is None."""

    name: str  # `eager`, `baseline`, `plan` or the name of a strategy
    measured_peak_bytes: int | None = None  # storages at the dispatcher, from the second step on
    measured_allocator_peak_bytes: int | None = None  # with what kernels allocate inside
    persistent_bytes: int | None = None  # what the caller owns
    step_seconds: float | None = None  # median wall time of `repeats` steps, all programs taking turns
    step_cpu_seconds: float | None = None  # median process CPU time of the same steps
    repeats: int = 0
    loss: float | None = None  # what the last verified step returned, when that is one number
    # Against eager after the verify run, by group: loss, gradients, parameters, buffers, optimizer_state.
    max_abs_diff: dict[str, float] = field(default_factory=dict)
    bitwise_equal: bool | None = (
        None  # every tensor compared, and the random state, has the same bits as eager's
    )


@dataclass(frozen=True)
class ComparisonRow(MeasuredRow):
    """One program beside the others, predicted beside measured."""

    predicted_peak_bytes: int | None = None
    predicted_peak_with_workspace_bytes: int | None = None
    predicted_step_seconds: float | None = None  # at `Comparison.reference_seen_s` where that is known
    recomputed: int = 0  # storages, with their bytes added up
    recomputed_bytes: int = 0
    moved_updates: int = 0  # parameter updates placed earlier than the program has them
    status: str = ""  # why planning stopped: optimal, feasible, infeasible, ...; empty for eager and baseline
    arena: ArenaReport | None = None  # that it ran in

    @property
    def largest_peak_bytes(self) -> int | None:
        """The peak with workspace that a limit is held against: the larger of what was predicted and what was measured."""
        known = (self.predicted_peak_with_workspace_bytes, self.measured_allocator_peak_bytes)
        return max((peak for peak in known if peak is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Comparison(CapturedReport):
    """Programs of one step side by side, predicted beside measured."""

    rows: tuple[ComparisonRow, ...]
    budget_bytes: int | None  # None when no limit was given
    lower_bound_bytes: int  # of any plan of the graph that is planned, after its rewrites
    order_lower_bound_bytes: int  # of any order of it
    is_for_bytes: bool  # the lowest peak within a time was asked for, not the least time within bytes
    bounds_are_of_rewritten: bool  # other rewrites may go below
    plan_seconds: float
    high_water_mark_bytes: (
        int | None
    )  # of the largest process that measured; None where the system does not tell
    notes: tuple[str, ...]
    budget_missed: str = ""  # how the plan is beyond its bytes or time, and what is live at its peak
    # Seconds of a piece of work, always the same: at the speed that plans are decided at, and at the one that was seen
    # while the programs ran. None where nothing was timed, or costs are estimated.
    reference_kept_s: float | None = None
    reference_seen_s: float | None = None

    def row(self, name: str) -> ComparisonRow:
        """The row of a program; KeyError when there is none of that name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)


@dataclass(frozen=True)
class ComparedShape:
    """Programs side by side at one shape. `sizes` are by dim, `rows` one for each program."""

    sizes: dict[str, int]
    rows: tuple[ComparisonRow, ...]


@dataclass(frozen=True, kw_only=True)
class ShapesComparison(CapturedReport):
    """A plan for all shapes beside eager, and beside batches padded to the largest shape."""

    dims: tuple[str, ...]  # that vary, with their ranges
    limit_bytes: int  # that the plan stays within at every shape
    shapes: tuple[ComparedShape, ...]
    repeats: int  # timed steps of each program at each shape
    plan_seconds: float
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RunReport(Report):
    """What happened when a plan was run."""

    steps: int
    step_seconds: float  # median wall time
    losses: tuple[float, ...]  # what each step returned, where that is one number
    predicted_peak_bytes: int  # storages, from the second step on
    measured_peak_bytes: int
    predicted_peak_with_workspace_bytes: int
    measured_allocator_peak_bytes: int
    max_abs_diff: dict[str, float]  # against eager by group, when verified
    bitwise_equal: bool | None
    calls: str  # what became of the calls, in words
    arena: ArenaReport | None = None  # that it ran in
    arena_on_the_way: tuple[
        ArenaOnTheWay, ...
    ] = ()  # of a plan for all shapes, at some from the smallest to the largest


def to_json(report: Any) -> str:
    """A report as one JSON object, fields under their own names."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()

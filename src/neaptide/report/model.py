"""What a report says, as plain data. The `..._text` modules make documents of it, `to_json` what `--json` writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from neaptide.plans import RangePeaks
from neaptide.runtime.arena.plan import ArenaOnTheWay, ArenaReport


@dataclass(frozen=True)
class AliveRow:
    """A storage that is alive at the peak.

    Attributes:
        name: of the value that made it; what the caller owns is called as the user calls it.
        kind: parameter, buffer, input, optimizer_state, gradient, activation, temporary or output.
        nbytes: its size in bytes.
        made_at: `file:line` of the operation that made it; empty for what the caller owns.
        code: text of that line.
        module: dotted path of the submodule.
    """

    name: str
    kind: str
    nbytes: int
    made_at: str = ""
    code: str = ""
    module: str = ""


@dataclass(frozen=True)
class ShapePeak:
    """A peak at one shape: storages and workspace by formula, in program order. `sizes` are by dim."""

    sizes: dict[str, int]
    predicted_peak_bytes: int


@dataclass(frozen=True)
class LargestSize:
    """How large a dim may be for a step to stay within so many bytes.

    Attributes:
        beside: sizes of the other dim that varies; empty where there is none.
        dim: name of the dim.
        end: of the range that was looked at; an answer of this size may be larger in truth.
        in_program_order: the largest size that fits in program order; None where none does.
        with_points: the largest size found that fits where storages are evicted and recomputed; None where none was.
        predicted_added_time: of recomputation at that size, as a share of the step.
    """

    beside: dict[str, int]
    dim: str
    end: int
    in_program_order: int | None
    with_points: int | None
    predicted_added_time: float | None


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
    """What is predicted for a range of shapes.

    Attributes:
        dims: that vary, with their ranges.
        relations: equalities between sizes that hold for all shapes.
        notes: for which sizes the program holds, and which line asked.
        peaks: at corners of the ranges.
        fit: the largest shapes within a limit; None where none was given.
        curves: peaks in program order along the ranges; None where they were not asked for.
    """

    dims: tuple[str, ...]
    relations: tuple[str, ...]
    notes: tuple[str, ...]
    peaks: tuple[ShapePeak, ...]
    fit: FittingShapes | None = None
    curves: RangePeaks | None = None


@dataclass(frozen=True)
class ProfileReport:
    """Whether a step fits, and what stands in the way. Nothing in it was measured by running the step.

    Attributes:
        name: of the target.
        device: what was predicted for.
        predicted_peak_bytes: storages at the dispatcher, residents included, in program order.
        predicted_peak_with_workspace_bytes: with the scratch that kernels allocate, where it is known.
        workspace_is_known: whether workspace was audited on this machine; else it is by formula.
        resident_bytes: parameters, buffers, optimizer state and batch: there for the whole step.
        lower_bound_bytes: no plan of reordering and recomputation goes below.
        order_lower_bound_bytes: no order of these operations goes below.
        bytes_by_kind_at_peak: at the peak of storages.
        alive_at_peak: storages alive there, largest first.
        peak_at: `file:line` of the operation at the peak; `peak_module` and `peak_phase` beside it.
        predicted_step_seconds: by the cost model; `seconds_are_measured` tells whether its operations were timed here.
        capacity_bytes: of the device, less what its driver keeps; None when no device was named.
        fits: whether the peak with workspace is within `capacity_bytes`; None without one.
        over_bytes: how far the peak is above the capacity; negative is room to spare; None without one.
        capture_seconds: time the capture took.
        operations: number of operations; `unknown_ops` those without a row in the op table.
        rewrites: what the capture changed, in words.
        not_counted: what no number here contains.
        captured_on: kind of the device whose kernels the step was captured with; empty when it is not known.
        axes: what runs along the batch and other directions of the whole step, in words.
        ranges: the same for a range of shapes; None where no dim was said to vary.
        versions: of neaptide, torch and Python.
        seed: of the random numbers.
    """

    name: str
    device: str
    predicted_peak_bytes: int
    predicted_peak_with_workspace_bytes: int
    workspace_is_known: bool
    resident_bytes: int
    lower_bound_bytes: int
    order_lower_bound_bytes: int
    bytes_by_kind_at_peak: dict[str, int]
    alive_at_peak: tuple[AliveRow, ...]
    peak_at: str
    peak_module: str
    peak_phase: str
    predicted_step_seconds: float
    seconds_are_measured: bool
    capacity_bytes: int | None
    fits: bool | None
    over_bytes: int | None
    capture_seconds: float
    operations: int
    unknown_ops: tuple[str, ...]
    rewrites: tuple[str, ...]
    not_counted: tuple[str, ...]
    versions: dict[str, str]
    seed: int
    captured_on: str = ""
    axes: tuple[str, ...] = ()
    ranges: ShapeRanges | None = None


@dataclass(frozen=True)
class ComparisonRow:
    """One program beside the others. A number that was not taken is None.

    Attributes:
        name: `eager`, `baseline`, `plan` or the name of a strategy.
        predicted_peak_bytes: and `measured_peak_bytes`: storages at the dispatcher, from the second step on.
        predicted_peak_with_workspace_bytes: and `measured_allocator_peak_bytes`: with what kernels allocate inside.
        resident_bytes: what the caller owns.
        step_seconds: median wall time of `repeats` steps, all programs taking turns.
        step_cpu_seconds: median process CPU time of the same steps.
        loss: what the last verified step returned, when that is one number.
        max_abs_diff: against eager after the verify run, by group: loss, gradients, parameters, buffers,
            optimizer_state.
        bitwise_equal: every tensor compared, and the random state, has the same bits as eager's.
        predicted_step_seconds: by the cost model, at `Comparison.pace_seen_s` where that is known.
        recomputed: storages recomputed; `recomputed_bytes` their sizes added up.
        moved_updates: parameter updates placed earlier than the program has them.
        status: why planning stopped: optimal, feasible, infeasible, ...; empty for eager and baseline.
        arena: numbers of the arena that it ran in; None for none.
    """

    name: str
    predicted_peak_bytes: int | None = None
    measured_peak_bytes: int | None = None
    predicted_peak_with_workspace_bytes: int | None = None
    measured_allocator_peak_bytes: int | None = None
    resident_bytes: int | None = None
    step_seconds: float | None = None
    step_cpu_seconds: float | None = None
    repeats: int = 0
    loss: float | None = None
    max_abs_diff: dict[str, float] = field(default_factory=dict)
    bitwise_equal: bool | None = None
    predicted_step_seconds: float | None = None
    recomputed: int = 0
    recomputed_bytes: int = 0
    moved_updates: int = 0
    status: str = ""
    arena: ArenaReport | None = None

    @property
    def largest_peak_bytes(self) -> int | None:
        """The peak with workspace that a limit is held against: the larger of what was predicted and what was measured."""
        known = (self.predicted_peak_with_workspace_bytes, self.measured_allocator_peak_bytes)
        return max((peak for peak in known if peak is not None), default=None)


@dataclass(frozen=True)
class Comparison:
    """Programs of one step side by side, predicted beside measured.

    Attributes:
        name: of the target; `device` what costs were taken for.
        rows: one for each program.
        budget_bytes: what the plan was to stay within; None when no limit was given.
        lower_bound_bytes: no plan of the graph that is planned goes below, after its rewrites;
            `order_lower_bound_bytes`: no order alone does.
        is_for_bytes: the lowest peak within a time was asked for, rather than the least time within bytes.
        bounds_are_of_rewritten: whether the bounds are those of a rewritten graph; other rewrites may go below.
        plan_seconds: time planning took; `capture_seconds` the capture.
        high_water_mark_bytes: of the largest process that measured; None where the system does not tell.
        notes: what the reader should know: causes of differences, operations left alone.
        versions: of neaptide, torch and Python; `seed` of the random numbers.
        budget_missed: how the plan is beyond the bytes or the time it was to stay within, and what is alive at its
            peak; empty when it is within.
        pace_kept_s: seconds of a piece of work, always the same, at the pace that plans are decided at;
            `pace_seen_s` those that were seen while the programs ran, which predicted step times are told at. None where
            nothing was timed, or costs are estimated.
    """

    name: str
    device: str
    rows: tuple[ComparisonRow, ...]
    budget_bytes: int | None
    lower_bound_bytes: int
    order_lower_bound_bytes: int
    is_for_bytes: bool
    bounds_are_of_rewritten: bool
    plan_seconds: float
    capture_seconds: float
    high_water_mark_bytes: int | None
    notes: tuple[str, ...]
    versions: dict[str, str]
    seed: int
    budget_missed: str = ""
    pace_kept_s: float | None = None
    pace_seen_s: float | None = None

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


@dataclass(frozen=True)
class ShapesComparison:
    """A plan for all shapes beside eager, and beside batches padded to the largest shape.

    Attributes:
        name: of the target; `device` what costs were taken for.
        dims: that vary, with their ranges.
        limit_bytes: that the plan stays within at every shape.
        shapes: that were compared.
        repeats: timed steps of each program at each shape.
        plan_seconds: time planning for all shapes took; `capture_seconds` the capture.
        notes: what the reader should know.
        versions: of neaptide, torch and Python; `seed` of the random numbers.
    """

    name: str
    device: str
    dims: tuple[str, ...]
    limit_bytes: int
    shapes: tuple[ComparedShape, ...]
    repeats: int
    plan_seconds: float
    capture_seconds: float
    notes: tuple[str, ...]
    versions: dict[str, str]
    seed: int


@dataclass(frozen=True)
class RunReport:
    """What happened when a plan was run.

    Attributes:
        name: of the target.
        steps: how many ran; `step_seconds` their median wall time.
        losses: what each returned, where that is one number.
        predicted_peak_bytes: and `measured_peak_bytes`: storages, from the second step on.
        predicted_peak_with_workspace_bytes: and `measured_allocator_peak_bytes`: with workspace.
        max_abs_diff: against eager by group, when verified; `bitwise_equal` likewise.
        calls: what became of the calls, in words.
        arena: numbers of the arena that it ran in; None for none.
        arena_on_the_way: of a plan for all shapes, what is predicted of its arena at some shapes from the smallest to the largest.
    """

    name: str
    steps: int
    step_seconds: float
    losses: tuple[float, ...]
    predicted_peak_bytes: int
    measured_peak_bytes: int
    predicted_peak_with_workspace_bytes: int
    measured_allocator_peak_bytes: int
    max_abs_diff: dict[str, float]
    bitwise_equal: bool | None
    calls: str
    versions: dict[str, str]
    seed: int
    arena: ArenaReport | None = None
    arena_on_the_way: tuple[ArenaOnTheWay, ...] = ()


def to_json(report: Any) -> str:
    """A report as one JSON object, fields under their own names."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()

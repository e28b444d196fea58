"""What a plan says of programs whose dims may vary, and of peaks over their ranges, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from neaptide.plans.records import Count, Entry, Seconds
from neaptide.symbolic.dims import Dim

_MOST_SIZES: Final = 17  # of a curve
_MOST_CURVES: Final = 5

Shape: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PeakCurve:
    """Predicted peaks along one dim, beside sizes of the others: storages and workspace by formula."""

    dim: str
    beside: Mapping[str, Count]
    sizes: tuple[Count, ...]  # ascending; one of the next numbers for each
    baseline_peak_bytes: tuple[Count, ...]
    planned_peak_bytes: tuple[Count, ...] = ()  # empty where nothing was planned
    plans: tuple[Count, ...] = ()  # which of several plans runs; empty where there are not several

    def label(self) -> str:
        """The sizes of the other dims, in words; empty where there are none."""
        return ", ".join(f"{dim} = {size}" for dim, size in self.beside.items())


@dataclass(frozen=True, slots=True)
class RangePeaks:
    """Peaks over the ranges of all dims, and the limit that what was planned stays within."""

    curves: tuple[PeakCurve, ...]  # by the sizes of the other dims, ascending
    limit_bytes: Count | None = None


def range_peaks(
    dims: Sequence[Dim],
    holds: Callable[[Shape], bool],
    baseline: Callable[[Shape], int],
    planned: Callable[[Shape], int] | None = None,
    limit_bytes: int | None = None,
    plan_at: Callable[[Shape], int] | None = None,
) -> RangePeaks:
    """Peaks along the dim with the longest range, for sizes of the others on the way from their smallest to their largest.

    Nothing is told where no dim varies, or where one has no end. At most 17 sizes of 5 curves are looked at; a shape that
    the program does not hold for is left out.
    """
    if not dims or any(dim.high is None for dim in dims):
        return RangePeaks((), limit_bytes)
    along = max(dims, key=lambda dim: (dim.high or 0) - dim.low)
    others = [dim for dim in dims if dim is not along]
    longest = max(((dim.high or 0) - dim.low for dim in others), default=0)
    curves = []
    for step in _between(0, longest, _MOST_CURVES):
        beside = {dim.name: dim.low + ((dim.high or 0) - dim.low) * step // max(longest, 1) for dim in others}
        sizes = _between(along.low, along.high or 0, _MOST_SIZES)
        shapes = {size: {**beside, along.name: size} for size in sizes}
        shapes = {size: shape for size, shape in shapes.items() if holds(shape)}
        if shapes:
            told = [() if peak is None else tuple(map(peak, shapes.values())) for peak in (planned, plan_at)]
            in_order = tuple(map(baseline, shapes.values()))
            curves.append(PeakCurve(along.name, beside, tuple(shapes), in_order, *told))
    return RangePeaks(tuple(curves), limit_bytes)


def _between(low: int, high: int, most: int) -> list[int]:
    """Numbers from one to another, both included, in steps as even as can be."""
    steps = min(most - 1, high - low)
    return [low + (high - low) * number // max(steps, 1) for number in range(steps + 1)]


@dataclass(frozen=True, slots=True)
class AskedDim:
    """A dim that was asked to vary: of the tensors at `path`, the argument or what is in it."""

    path: str
    axis: Count
    low: Count
    high: Count | None  # None for no end
    name: str = ""  # dims of one name are one size; empty for a dim of its own


@dataclass(frozen=True, slots=True)
class PointCounts:
    """How many evictions a program could decide. A gap lies between two uses of a unit, where it could be evicted."""

    found: Count  # gaps; of these, left out:
    no_way_back: Count  # since nothing can make the unit again
    no_bytes: Count  # since it has none at any shape
    always_fits: Count  # since nothing in the gap is above the limit at any shape
    points: Count  # places between operations at which something may be done
    positions: Count  # places between operations

    @property
    def kept(self) -> int:
        """Gaps in which a unit may be evicted at some shape."""
        return self.found - self.no_way_back - self.no_bytes - self.always_fits


@dataclass(frozen=True, slots=True)
class PointsRecord(PointCounts):
    """A program with points: what is evicted is decided at each call.

    The points follow from the order and from the least bytes of a run. They are found again when the plan is loaded, and
    must be as many.
    """

    order: tuple[Count, ...]  # node ids, of first executions
    order_reason: str  # what made the order, and what is proved of it
    host_bytes: Count | None  # that may wait on the host; None where nothing may


@dataclass(frozen=True, slots=True)
class PlanOfShapes:
    """One of several plans of a program. A call runs the first of them that is within the limit at its shape."""

    sequence: tuple[Count, ...]  # node ids in running order; a repeated id is a recomputation
    seconds: Seconds  # of one step at the largest shape
    planned_at: Mapping[str, Count] | None  # the shape that it was searched for; None for program order


@dataclass(frozen=True, slots=True)
class ShapesProgram(Entry):
    """What was planned of one program, for all its shapes. Either `points` or `plans` is there."""

    dims: tuple[Dim, ...]  # each with an end
    relations: tuple[str, ...]  # equalities between sizes that hold for all its shapes
    notes: tuple[str, ...]  # where it holds for less than was asked, and which line asked
    peaks: RangePeaks  # with points, those of the plan are of the device that it was made for
    points: PointsRecord | None = None
    plans: tuple[PlanOfShapes, ...] = ()  # the fastest first
    workspace: tuple[tuple[Count, Count], ...] = ()  # scratch by node that the peaks of `plans` count

    @property
    def largest(self) -> dict[str, int]:
        """The largest size of each dim."""
        return {dim.name: dim.high or 0 for dim in self.dims}


@dataclass(frozen=True, slots=True)
class ShapesRecord:
    """A plan for all shapes in some ranges: what was asked to vary, and an entry for each graph of the step."""

    asked: tuple[AskedDim, ...]
    programs: tuple[ShapesProgram, ...]

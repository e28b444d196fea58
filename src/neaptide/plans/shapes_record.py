"""What was planned of a step whose dims may vary, as plain data: its ranges, and what was decided for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from neaptide.plans.range_peaks import RangePeaks

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0.0)]


@dataclass(frozen=True, slots=True)
class AskedDim:
    """A dim that was asked to vary.

    Attributes:
        path: of the argument, or of what is in it.
        axis: dim of the tensors there.
        low: smallest size.
        high: largest size; None for none.
        name: dims of one name are one size; empty for a dim of its own.
    """

    path: str
    axis: _Count
    low: _Count
    high: _Count | None
    name: str = ""


@dataclass(frozen=True, slots=True)
class DimRange:
    """A dim of a program: it holds for these sizes, both ends included."""

    name: str
    low: _Count
    high: _Count

    def __str__(self) -> str:
        return f"{self.name} in {self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class PointsRecord:
    """A program with points: what is evicted is decided at each call.

    The points follow from the order and from the least bytes of a run. They are found again when the plan is loaded, and
    must be as many.

    Attributes:
        order: node ids, of first executions.
        order_reason: what made the order, and what is proved of it.
        host_bytes: that may wait on the host; None where nothing may.
        found: gaps between two uses of a unit, where it could be evicted.
        no_way_back: of these, left out since nothing can make it again.
        no_bytes: left out, since it has none at any shape.
        always_fits: left out, since nothing in the gap is above the limit at any shape.
        points: places between operations at which something may be done.
        positions: places between operations.
    """

    order: tuple[_Count, ...]
    order_reason: str
    host_bytes: _Count | None
    found: _Count
    no_way_back: _Count
    no_bytes: _Count
    always_fits: _Count
    points: _Count
    positions: _Count

    @property
    def kept(self) -> int:
        """Gaps in which a unit may be evicted at some shape."""
        return self.found - self.no_way_back - self.no_bytes - self.always_fits


@dataclass(frozen=True, slots=True)
class PlanOfShapes:
    """One of several plans of a program. A call runs the first of them that is within the limit at its shape.

    Attributes:
        sequence: node ids in running order; a repeated id is a recomputation.
        seconds: of one step at the largest shape.
        planned_at: the shape that it was searched for; None for program order.
    """

    sequence: tuple[_Count, ...]
    seconds: _Seconds
    planned_at: Mapping[str, _Count] | None


@dataclass(frozen=True, slots=True)
class ShapesProgram:
    """What was planned of one program, for all its shapes. Either `points` or `plans` is there.

    Attributes:
        role: which program of the step it is, such as `steady` or `first_1`.
        name: of the graph.
        fingerprint: of the captured graph, with its dims.
        node_count: of that graph.
        dims: that its sizes are made of.
        relations: equalities between sizes that hold for all its shapes, as text.
        notes: where it holds for less than was asked, and which line asked.
        budget_bytes: the limit on its peak with workspace, at every shape.
        peaks: predicted, along the ranges. With points, those of the plan are of the device that it was made for.
        points: where it decides, where it has points.
        plans: the fastest first, where there are several.
        workspace: (node id, scratch bytes), ascending, that the peaks of `plans` count at every shape.
    """

    role: str
    name: str
    fingerprint: str
    node_count: _Count
    dims: tuple[DimRange, ...]
    relations: tuple[str, ...]
    notes: tuple[str, ...]
    budget_bytes: _Count
    peaks: RangePeaks
    points: PointsRecord | None = None
    plans: tuple[PlanOfShapes, ...] = ()
    workspace: tuple[tuple[_Count, _Count], ...] = ()

    @property
    def largest(self) -> dict[str, int]:
        """The largest size of each dim."""
        return {dim.name: dim.high for dim in self.dims}


@dataclass(frozen=True, slots=True)
class ShapesRecord:
    """A plan for all shapes in some ranges.

    Attributes:
        asked: dims that were asked to vary.
        programs: one for each graph of the step.
    """

    asked: tuple[AskedDim, ...]
    programs: tuple[ShapesProgram, ...]

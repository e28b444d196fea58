"""What a step uses over a range of shapes, and the largest of them that fit into so many bytes. Nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Final

from neaptide.cost.devices import Device
from neaptide.cost.model import EstimatedCost
from neaptide.errors import UsageError
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.points.choices.largest import (
    LimitedProgram,
    grows_with,
    last_by_halving,
    last_by_looking,
    least_bytes,
)
from neaptide.planner.points.plan import Decisions
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.plans import RangePeaks, range_peaks
from neaptide.policy.points.for_all_shapes import PointsMaker
from neaptide.report.model import FittingShapes, LargestSize, ShapePeak, ShapeRanges
from neaptide.settings import DEFAULT_TIME_LIMIT_S
from neaptide.symbolic.dims import Dim

_MOST_CORNERS: Final = 8
_MOST_DIMS: Final = 2
_ENDLESS: Final = 2**40  # a dim that takes no bytes of the device is not followed further


def shape_ranges(captured: CapturedStep, device: Device, *, with_curves: bool = False) -> ShapeRanges:
    """The dims of a step that may vary, and its peak in program order at the corners of their ranges, or along them.

    A range without end is taken at its smallest size. Corners that break a relation are left out.
    """
    graph, sizes = captured.steady.graph, captured.steady.sizes
    ends = [(d.low,) if d.high is None else tuple(dict.fromkeys((d.low, d.high))) for d in graph.dims]
    corners = islice(product(*ends), _MOST_CORNERS)
    shapes = [dict(zip((dim.name for dim in graph.dims), corner, strict=True)) for corner in corners]
    shapes = [shape for shape in shapes if sizes.hold(shape)]
    sample = shapes[-1] if shapes else {dim.name: dim.low for dim in graph.dims}
    in_order = ShapedProgram(graph, EstimatedCost(device, registry()), range(len(graph.nodes)), sample)
    return ShapeRanges(
        tuple(map(str, graph.dims)),
        tuple(map(str, graph.relations)),
        sizes.notes,
        tuple(ShapePeak(shape, in_order.at(shape).peak_bytes) for shape in (shapes if graph.dims else ())),
        curves=range_peaks(graph.dims, sizes.hold, lambda shape: in_order.at(shape).peak_bytes)
        if with_curves
        else None,
    )


def fitting_shapes(
    captured: CapturedStep, device: Device, limit_bytes: int, *, with_curves: bool = False
) -> FittingShapes:
    """The largest size of the last dim that varies, beside sizes of the other one.

    With two dims there is a row for the ends of the range of the first, and for the powers of two between them. A range
    without end ends where a single operation takes more than the limit. A shape fits where all programs of the step
    do, those of its first calls included. Bytes are those of storages and workspace by formula, with what the caller owns.

    In program order the answer is exact: by halving where bytes are proved to grow with the dim, else every size is
    looked at. With points the answer is a size for which a script was found, and none was for the next size.
    """
    names = [dim.name for dim in captured.steady.graph.dims]
    if len(names) > _MOST_DIMS:
        raise UsageError(
            f"{len(names)} dims vary: {', '.join(names)}",
            why="the largest shapes that fit are a table of one dim against another",
            next_step="leave all but two dims out of dynamic=",
        )
    if not names:
        return FittingShapes(limit_bytes, ())
    fitting = _Fitting(captured, device, limit_bytes)
    found = fitting.run()
    return replace(found, curves=fitting.curves()) if with_curves else found


def largest_in_order(captured: CapturedStep, device: Device, limit_bytes: int) -> LargestSize | None:
    """The largest size of the only dim that varies for which a step fits in program order; None where no size is one."""
    return next(iter(_Fitting(captured, device, limit_bytes, with_points=False).run().rows), None)


class _Fitting:
    def __init__(
        self, captured: CapturedStep, device: Device, limit_bytes: int, *, with_points: bool = True
    ) -> None:
        self.programs, self.limit = captured.programs, limit_bytes
        self.cost = EstimatedCost(device, registry())
        self.dims = list(captured.steady.graph.dims)
        self.dims = [self._ended(dim) for dim in self.dims]
        largest = {dim.name: dim.high or dim.low for dim in self.dims}
        self.in_order, maker = self._in_order(largest), PointsMaker(device, Limits(DEFAULT_TIME_LIMIT_S))
        self.limited = [
            LimitedProgram(one, Decisions(maker.within(one, largest, limit_bytes).plan), limit_bytes)
            for one in (self.in_order if with_points else ())
        ]
        self.grows = all(grows_with(one, self.dims[-1].name, self.dims) for one in self.in_order)

    def run(self) -> FittingShapes:
        """All rows."""
        *others, dim = self.dims
        rows = [self._row({}, dim)] if not others else []
        for other in others:
            rows += [self._row({other.name: size}, dim) for size in _marks(other)]
        return FittingShapes(self.limit, tuple(row for row in rows if row is not None))

    def curves(self) -> RangePeaks:
        """Peaks of the usual program, in its own order and with points."""
        usual, holds = self.limited[0], self.programs[0].sizes.hold
        return range_peaks(
            self.dims, holds, lambda shape: usual.in_order.at(shape).peak_bytes, usual.peak_bytes, self.limit
        )

    def _row(self, beside: dict[str, int], dim: Dim) -> LargestSize | None:
        """None where no shape keeps all relations."""
        sizes = self._sizes(beside, dim)
        if not sizes:
            return None

        def fits_in_order(size: int) -> bool:
            shape = {**beside, dim.name: size}
            return all(one.at(shape).peak_bytes <= self.limit for one in self.in_order)

        def fits_with_points(size: int) -> bool:
            return all(one.fits_with_points({**beside, dim.name: size}) for one in self.limited)

        look = last_by_halving if self.grows else last_by_looking
        in_order = look(sizes, fits_in_order)
        if not self.limited:
            return LargestSize(beside, dim.name, dim.high or dim.low, in_order, None, None)
        beyond = sizes if in_order is None else sizes[sizes.index(in_order) + 1 :]
        with_points = last_by_halving(beyond, fits_with_points)
        added = None
        if with_points is not None:
            added = self.limited[0].added_time({**beside, dim.name: with_points})
        elif in_order is not None:
            with_points, added = in_order, 0.0
        return LargestSize(beside, dim.name, dim.high or dim.low, in_order, with_points, added)

    def _sizes(self, beside: dict[str, int], dim: Dim) -> Sequence[int]:
        """Sizes of a dim for which all programs hold, ascending."""
        everything = range(dim.low, (dim.high or dim.low) + 1)
        if not any(one.sizes.relations or one.sizes.conditions for one in self.programs):
            return everything
        return [
            size
            for size in everything
            if all(program.sizes.hold({**beside, dim.name: size}) for program in self.programs)
        ]

    def _in_order(self, sample: Mapping[str, int]) -> list[ShapedProgram]:
        """Each program in its own order; ranges without end are ended as those of the steady program are."""
        ends = {dim.name: dim.high for dim in self.dims}
        found = []
        for program in self.programs:
            dims = [replace(dim, high=dim.high or ends.get(dim.name)) for dim in program.graph.dims]
            graph = replace(program.graph, dims=tuple(dims))
            found.append(ShapedProgram(graph, self.cost, range(len(graph.nodes)), sample))
        return found

    def _ended(self, dim: Dim) -> Dim:
        """A dim with an end: the first doubling at which no script can stay within the limit."""
        if dim.high is not None:
            return dim
        lowest = {other.name: other.low for other in self.programs[0].graph.dims}
        in_order = self._in_order(lowest)

        def is_beyond(shape: dict[str, int]) -> bool:
            return any(least_bytes(one, shape) > self.limit for one in in_order)

        end = max(dim.low, 1)
        while end < _ENDLESS and not is_beyond({**lowest, dim.name: end}):
            end *= 2
        return replace(dim, high=end)


def _marks(dim: Dim) -> list[int]:
    """Both ends of a range, and the powers of two between them."""
    high = dim.high or dim.low
    powers = [2**k for k in range(high.bit_length()) if dim.low < 2**k < high]
    return list(dict.fromkeys((dim.low, *powers, high)))

"""What a step uses over a range of shapes: its peak in program order at the ends of the ranges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product

from neaptide.cost.devices import Device
from neaptide.cost.model import EstimatedCost
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.ops import registry
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.plans import RangePeaks, range_peaks
from neaptide.report.model import ShapePeak, ShapeRanges
from neaptide.symbolic.dims import Dim

_MOST_SHAPES = 8


def shape_ranges(captured: CapturedStep, device: Device) -> ShapeRanges:
    """The dims of a step that may vary, and its peak at the corners of their ranges.

    A range without end is taken at its smallest size. Corners that break a relation are left out.
    """
    program = captured.steady
    graph = program.graph
    shapes = [
        dict(zip((dim.name for dim in graph.dims), corner, strict=True)) for corner in _corners(graph.dims)
    ]
    shapes = [shape for shape in shapes if program.sizes.hold(shape)]
    peaks: list[ShapePeak] = []
    if graph.dims and shapes:
        shaped = ShapedProgram(graph, EstimatedCost(device, registry()), range(len(graph.nodes)), shapes[-1])
        peaks = [ShapePeak(shape, shaped.at(shape).peak_bytes) for shape in shapes]
    return ShapeRanges(
        tuple(map(str, graph.dims)), tuple(map(str, graph.relations)), program.sizes.notes, tuple(peaks)
    )


def shape_curves(captured: CapturedStep, device: Device) -> RangePeaks:
    """The peak of a step in program order along the ranges of its dims; no curves where a range has no end."""
    program = captured.steady
    graph = program.graph
    lowest = {dim.name: dim.low for dim in graph.dims}
    shaped = ShapedProgram(graph, EstimatedCost(device, registry()), range(len(graph.nodes)), lowest)
    return range_peaks(graph.dims, program.sizes.hold, lambda shape: shaped.at(shape).peak_bytes)


def _corners(dims: Sequence[Dim]) -> list[tuple[int, ...]]:
    ends = [(dim.low,) if dim.high is None else tuple(dict.fromkeys((dim.low, dim.high))) for dim in dims]
    return list(islice(product(*ends), _MOST_SHAPES))

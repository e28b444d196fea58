"""The peak at a shape that is told at once is that of the program of that shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.analysis.shape_peaks import ShapePeaks
from neaptide.errors import UsageError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.schedule import Schedule
from schedule.symbolic.symbolic_graphs import shapes_of, symbolic_graphs
from support.drawn import schedules
from support.hand_graphs import loop_graph


@given(st.data())
def test_peaks_are_those_of_each_shape(data):
    graph = data.draw(symbolic_graphs())
    schedule = data.draw(schedules(graph))
    shapes = shapes_of(graph)
    workspace = {node.id: data.draw(st.integers(0, 500)) for node in graph.nodes}
    peaks = ShapePeaks(graph, schedule, shapes[0], workspace)
    for shape in data.draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=5)):
        device = memory_profile(with_sizes(graph, shapes[0]), schedule).device
        static = memory_profile(with_sizes(graph, shape), schedule, workspace=workspace, device=device)
        assert peaks.peak_bytes(shape) == static.peak_bytes
        assert peaks.peak_with_workspace_bytes(shape) == static.peak_with_workspace_bytes


def test_what_runs_again_is_counted_again():
    b = GraphBuilder("again")
    rows, columns = b.dim("rows", 1), b.dim("columns", 1)
    x = b.input("x", (rows, columns))
    (wide,) = b.node("toy.wide", x, outputs=["wide: f32[{rows}, {columns}, 8]"])
    (narrow,) = b.node("toy.narrow", wide, outputs=["narrow: f32[{rows}]"])
    (square,) = b.node("toy.square", narrow, outputs=["square: f32[{rows}, {rows}]"])
    (last,) = b.node("toy.last", square, wide, outputs=["last: f32[2]"])
    b.output(last)
    graph = b.finish()
    kept, again = (Schedule.from_nodes(graph, order) for order in ((0, 1, 2, 3), (0, 1, 2, 0, 3)))
    for schedule in (kept, again):
        peaks = ShapePeaks(graph, schedule, {"rows": 2, "columns": 2})
        for shape in ({"rows": 3, "columns": 50}, {"rows": 90, "columns": 2}):
            static = memory_profile(with_sizes(graph, shape), schedule)
            assert peaks.peak_bytes(shape) == static.peak_bytes


def test_loops_are_refused():
    graph = loop_graph()
    with pytest.raises(UsageError, match="loops"):
        ShapePeaks(graph, Schedule.program_order(graph), {})

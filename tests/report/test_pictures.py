"""Charts as SVG, as PNG and in characters: every number is in the picture, where it lies."""

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import MissingExtra, UsageError
from neaptide.ir.values import Kind
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.planner.recompute.curve.curve import CurvePoint, RecomputeCurve
from neaptide.plans import PeakCurve, RangePeaks
from neaptide.report.charts.chart import Axis, Box, Chart, Key, Line, Plot, byte_marks
from neaptide.report.charts.file import check_picture_path
from neaptide.report.charts.layout_text import layout_text
from neaptide.report.charts.pictures import (
    curve_chart,
    kind_colours,
    layout_chart,
    range_chart,
    streams_chart,
)
from neaptide.report.charts.streams import Level, Streams, busy_seconds, most
from neaptide.report.charts.svg import chart_svg
from neaptide.report.plan_text import plan_text
from report import samples
from support.together import together

MIB = 1 << 20
SVG = "{http://www.w3.org/2000/svg}"
PLOT = Plot(Axis(0, 10), Axis(0, 4), (Box(0, 5, 0, 2, "#111"),), (Line(((0, 1), (10, 3)), "#222"),))
CHART = Chart("title & <more>", "summary", (PLOT,), (Key("key", "#222"),))
CURVE = RecomputeCurve(
    (
        CurvePoint(100, 100, 10.0, 10.0, "program_order", (0, 1)),
        CurvePoint(60, 58, 12.0, 11.5, "closure", (0, 1, 0)),
        CurvePoint(40, 40, 15.0, 14.0, "greedy <&>", (0, 1, 0, 1)),
        CurvePoint(20, 40, 15.0, math.inf, "greedy <&>", (0, 1, 0, 1)),
    ),
    baseline_peak_bytes=100,
    baseline_seconds=10.0,
    lowest_peak_bytes=40,
    lowest_bound_bytes=30,
)
SIZES = (16, 1000, 4096)
RANGE = RangePeaks(
    (PeakCurve("tokens", {}, SIZES, (1 * MIB, 4 * MIB, 16 * MIB), (1 * MIB, 4 * MIB, 7 * MIB)),), 8 * MIB
)
TWO_DIMS = RangePeaks(
    tuple(PeakCurve("tokens", {"rows": n}, SIZES, tuple(n * size * 1000 for size in SIZES)) for n in (2, 8))
)
PROBLEM = LayoutProblem(
    (Buffer("low", 0, 10, 100, kind="activation"), Buffer("high & <dry>", 5, 10, 300, kind="gradient")),
    "two",
)
PLACED = Layout((0, 100), 400)


def elements(chart, name):
    return list(ET.fromstring(chart_svg(chart)).iter(SVG + name))


def numbers(element, *names):
    return tuple(float(element.get(name)) for name in names)


def with_tips(chart, name):
    """Elements with a tooltip, each with its text."""
    found = [(one, one.find(f"{SVG}title")) for one in elements(chart, name)]
    return [(one, tip.text) for one, tip in found if tip is not None]


def stacked(problem):
    """Nothing shares a byte: legal for every problem."""
    offsets, top = [], 0
    for buffer in problem.buffers:
        offsets.append(-(-top // buffer.alignment) * buffer.alignment)
        top = offsets[-1] + buffer.nbytes
    return Layout.of(problem, tuple(offsets))


# -- charts


@together(
    ("most_bytes", "labels"),
    [
        (1300 << 20, ["0", "200 MiB", "400 MiB", "600 MiB", "800 MiB", "1000 MiB", "1200 MiB"]),
        (3 << 30, ["0", "500 MiB", "1000 MiB", "1500 MiB", "2000 MiB", "2500 MiB", "3000 MiB"]),
        (0, ["0"]),
    ],
)
def test_marks_are_round(most_bytes, labels):
    assert [label for _, label in byte_marks(most_bytes)] == labels


def test_a_chart_needs_no_matplotlib_as_svg(monkeypatch):
    def without_matplotlib(name, *_):
        raise ImportError(name)

    monkeypatch.setattr("neaptide.report.charts.file.importlib.import_module", without_matplotlib)
    assert check_picture_path("x.svg").name == "x.svg"
    with pytest.raises(MissingExtra, match="matplotlib"):
        check_picture_path("x.png")


# -- time against memory


def test_a_curve_has_a_point_for_each_plan_within_its_budget_and_a_line_of_finite_bounds():
    chart = curve_chart(CURVE, title="a <b> & c\x00")
    (plot,) = chart.plots
    bounds, plans = plot.lines
    assert plans.points == ((40, 0.5), (58, pytest.approx(0.2)), (100, 0.0))
    assert [nbytes for nbytes, _ in bounds.points] == [40, 60, 100]
    assert (plot.x.last, plot.y.last, plot.boxes[0].right) == (100, 0.5, 30)
    circles = with_tips(chart, "circle")
    assert len(circles) == 3
    assert "+50.00% time" in circles[0][1]
    assert "greedy <&>" in circles[0][1]
    places = [numbers(circle, "cx", "cy") for circle, _ in circles]
    # Less memory to the left, more time higher up.
    assert places == sorted(places, key=lambda place: place[0])
    assert places == sorted(places, key=lambda place: place[1])
    assert len(elements(chart, "polyline")) == 2
    point = CurvePoint(0, 0, 0.0, 0.0, "program_order", ())
    assert elements(curve_chart(RecomputeCurve((point,), 0, 0.0, 0, 0)), "circle")


# -- peaks over ranges


def points(peaks):
    return {tip: numbers(circle, "cx", "cy") for circle, tip in with_tips(range_chart(peaks), "circle")}


def test_each_number_of_a_range_is_a_point_and_higher_peaks_are_higher_up(golden):
    golden("report/range_one_dim.svg", chart_svg(range_chart(RANGE, title="zoo:llama@tiny")))
    found = points(RANGE)
    assert len(found) == 2 * len(SIZES)
    in_order, planned = (
        found[f"tokens = 4096\n{kind}"] for kind in ("program order: 16.00 MiB", "planned: 7.00 MiB")
    )
    assert in_order[0] == planned[0]
    assert in_order[1] < planned[1]


def test_two_dims_are_a_curve_for_each_size_of_the_other_one_and_no_range_is_no_picture():
    chart = range_chart(TWO_DIMS)
    assert len(elements(chart, "polyline")) == 2
    assert {"rows = 2", "rows = 8"} <= {text.text for text in elements(chart, "text")}
    with pytest.raises(UsageError, match="no range to draw"):
        range_chart(RangePeaks(()))


# -- layouts


def boxes(problem, layout):
    """Rectangles with a tooltip, by the first line of it."""
    found = {}
    for rect, tip in with_tips(layout_chart(problem, layout), "rect"):
        found.setdefault(tip.split("\n")[0], []).append((numbers(rect, "x", "y", "width", "height"), tip))
    return found


def test_rectangles_lie_at_their_steps_and_offsets():
    found = boxes(PROBLEM, PLACED)
    [((x, y, width, height), tip)] = found["low (activation)"]
    [((x2, y2, width2, height2), tip2)] = found["high & <dry> (gradient)"]
    assert width == pytest.approx(2 * width2)
    assert height2 == pytest.approx(3 * height)
    assert x2 == pytest.approx(x + width / 2)
    assert y2 + height2 == pytest.approx(y)
    assert tip == "low (activation)\n100 B, 100 bytes\nsteps [0, 10)\noffset 0"
    assert "offset 100" in tip2
    paths = [path.get("d") for path in elements(layout_chart(PROBLEM, PLACED), "path")]
    assert paths[-1].count("V") == 3, "live bytes change where buffers begin and end"


def test_every_kind_has_its_colour_and_letter():
    kinds = [*map(str, Kind), "workspace"]
    problem = LayoutProblem(tuple(Buffer(k, 0, 1, 8, kind=k) for k in kinds))
    colours = kind_colours(problem)
    assert len(set(colours.values())) == len(kinds)
    svg = chart_svg(layout_chart(problem, stacked(problem)))
    key = layout_text(problem, stacked(problem)).splitlines()[-1]
    for kind in kinds:
        assert f'fill="{colours[kind]}"' in svg
        assert kind.replace("_", " ") in key


@given(st.text(), st.text())
def test_any_name_and_kind_is_well_formed(name, kind):
    problem = LayoutProblem((Buffer(name, 0, 1, 1, kind=kind),), name)
    assert elements(layout_chart(problem, Layout((0,), 1), title=kind), "rect")
    assert layout_text(problem, Layout((0,), 1))


def test_letters_stand_where_buffers_lie():
    buffers = Buffer("low", 0, 10, 100, kind="activation"), Buffer("high", 5, 10, 300, kind="my kind")
    assert layout_text(LayoutProblem(buffers), Layout((0, 100), 400), height=4).splitlines() == [
        *["            |.....ccccc"] * 3,
        "        0 B |aaaaaaaaaa",
        "live tenths |22222XXXXX",
        "       step |0 .. 10",
        "a activation, c my kind, . free, X full",
    ]


# -- copies to the host and back


def test_in_flight_is_what_was_asked_for_and_is_not_done(golden):
    made = Streams.of(samples.offloaded())
    assert most(made.in_flight) == Level(0.12, 12 * MIB, 2)
    assert [level.nbytes // MIB for level in made.in_flight] == [8, 12, 4, 0, 2, 0, 8, 0, 4, 0, 2, 0]
    assert most(made.on_host) == Level(0.3, 14 * MIB, 3)
    assert made.on_host[-1] == Level(0.72, 0, 0)
    assert busy_seconds(made.out) == pytest.approx(0.14)
    assert made.waited == pytest.approx(0.01)
    golden("report/plan_streams.txt", plan_text(samples.plan(samples.offloaded()), path="best.json") + "\n")


def test_nothing_is_told_where_nothing_waits():
    assert Streams.of(samples.program()) is None
    assert "Copies beside" not in plan_text(samples.plan())
    with pytest.raises(UsageError, match="no timeline to draw"):
        streams_chart(samples.program())

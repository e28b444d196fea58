"""The curve as SVG and as PNG."""

import math
import xml.etree.ElementTree as ET

import pytest

from neaptide.planner.recompute.curve.points import CurvePoint, RecomputeCurve
from neaptide.report.chart_file import save_chart
from neaptide.report.chart_svg import chart_svg
from neaptide.report.pictures import curve_chart

SVG = "{http://www.w3.org/2000/svg}"
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


def test_lines_are_those_of_plans_within_their_budgets_and_of_finite_bounds():
    (plot,) = curve_chart(CURVE).plots
    bounds, plans = plot.lines
    assert plans.points == ((40, 0.5), (58, pytest.approx(0.2)), (100, 0.0))
    assert [nbytes for nbytes, _ in bounds.points] == [40, 60, 100]
    assert (plot.x.last, plot.y.last, plot.boxes[0].right) == (100, 0.5, 30)


def test_svg_has_a_point_with_its_numbers_for_each_plan():
    root = ET.fromstring(chart_svg(curve_chart(CURVE, title="a <b> & c\x00")))
    circles = [c for c in root.iter(f"{SVG}circle") if c.find(f"{SVG}title") is not None]
    tips = [c.find(f"{SVG}title").text for c in circles]
    assert len(tips) == 3
    assert "+50.00% time" in tips[0]
    assert "greedy <&>" in tips[0]
    places = [(float(c.get("cx")), float(c.get("cy"))) for c in circles]
    # Less memory to the left, more time higher up.
    assert places == sorted(places, key=lambda place: place[0])
    assert places == sorted(places, key=lambda place: place[1])
    assert len(list(root.iter(f"{SVG}polyline"))) == 2


def test_a_curve_without_time_is_drawn():
    point = CurvePoint(0, 0, 0.0, 0.0, "program_order", ())
    ET.fromstring(chart_svg(curve_chart(RecomputeCurve((point,), 0, 0.0, 0, 0))))


def test_png(tmp_path):
    pytest.importorskip("matplotlib")
    save_chart(tmp_path / "curve.png", curve_chart(CURVE, title="a curve"))
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")

"""Peaks over ranges as SVG and as PNG: every number is in the picture, and the limit where it is."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from neaptide.errors import UsageError
from neaptide.plans import PeakCurve, RangePeaks
from neaptide.report.chart_file import save_chart
from neaptide.report.chart_svg import chart_svg
from neaptide.report.pictures import range_chart

MIB = 1 << 20
SVG = "{http://www.w3.org/2000/svg}"
SIZES = (16, 1000, 4096)
ONE = RangePeaks(
    (PeakCurve("tokens", {}, SIZES, (1 * MIB, 4 * MIB, 16 * MIB), (1 * MIB, 4 * MIB, 7 * MIB)),), 8 * MIB
)
TWO = RangePeaks(
    tuple(
        PeakCurve("tokens", {"rows": rows}, SIZES, tuple(rows * size * 1000 for size in SIZES))
        for rows in (2, 8)
    )
)


def ranges_svg(peaks, title=""):
    return chart_svg(range_chart(peaks, title=title))


def points(root):
    return {
        c.find(f"{SVG}title").text: (float(c.get("cx")), float(c.get("cy")))
        for c in root.iter(f"{SVG}circle")
    }


def test_one_dim_golden(golden):
    golden("report/range_one_dim.svg", ranges_svg(ONE, title="zoo:llama@tiny"))


def test_each_number_is_a_point_and_higher_peaks_are_higher_up():
    found = points(ET.fromstring(ranges_svg(ONE)))
    assert len(found) == 2 * len(SIZES)
    in_order, planned = (
        found[f"tokens = 4096\n{kind}"] for kind in ("program order: 16.00 MiB", "planned: 7.00 MiB")
    )
    assert in_order[0] == planned[0]
    assert in_order[1] < planned[1]


def test_the_limit_is_drawn_where_a_peak_of_its_bytes_is():
    at_limit = replace(ONE, limit_bytes=7 * MIB)
    text = ranges_svg(at_limit)
    y = points(ET.fromstring(text))["tokens = 4096\nplanned: 7.00 MiB"][1]
    assert f"{y:.2f}H" in text
    assert 'stroke="#D55E00"' not in ranges_svg(TWO)


def test_two_dims_are_a_curve_for_each_size_of_the_other_one():
    text = ranges_svg(TWO)
    assert len(list(ET.fromstring(text).iter(f"{SVG}polyline"))) == 2
    assert "rows = 2<" in text
    assert "rows = 8<" in text


def test_no_range_is_no_picture():
    with pytest.raises(UsageError, match="no range to draw"):
        range_chart(RangePeaks(()))


def test_png(tmp_path):
    pytest.importorskip("matplotlib")
    save_chart(tmp_path / "a.png", range_chart(TWO, title="two dims"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")

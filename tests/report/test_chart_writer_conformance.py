"""What `report.charts.file.WRITERS` promises, of every kind of file and of every chart."""

from __future__ import annotations

import pytest

from neaptide.errors import UsageError
from neaptide.report.charts.chart import Axis, Chart, Plot
from neaptide.report.charts.file import WRITERS, check_picture_path, save_chart
from neaptide.report.charts.pictures import curve_chart, layout_chart, range_chart, streams_chart
from report import samples
from report.test_pictures import CHART, CURVE, PLACED, PROBLEM, TWO_DIMS
from support.together import together

BEGINNINGS = {".svg": b"<svg", ".png": b"\x89PNG"}
CHARTS = {
    "shapes": CHART,
    "empty": Chart("nothing", "", (Plot(Axis(0, 1), Axis(0, 1)),), ()),
    "curve": curve_chart(CURVE, title="a curve"),
    "range": range_chart(TWO_DIMS, title="two dims"),
    "layout": layout_chart(PROBLEM, PLACED, title="$x & _y"),
    "streams": streams_chart(samples.offloaded()),
}


@together("kind", WRITERS)
@together("name", CHARTS, quick=("shapes", "layout"))
def test_every_chart_is_drawn_the_same_again(kind, name, tmp_path):
    if kind == ".png":
        pytest.importorskip("matplotlib")
    drawn = []
    for number in range(2):
        path = check_picture_path(tmp_path / f"{number}{kind}")
        save_chart(path, CHARTS[name])
        drawn.append(path.read_bytes())
    assert drawn[0].startswith(BEGINNINGS[kind])
    assert drawn[0] == drawn[1]


@together("kind", WRITERS)
def test_what_stands_in_a_file_stays_until_the_picture_is_whole(kind, tmp_path, monkeypatch):
    there = tmp_path / f"chart{kind}"
    there.write_text("before")

    def half(path, _chart):
        path.write_text("ha")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(WRITERS, kind, half)
    for path in (there, tmp_path / "none" / f"chart{kind}"):
        with pytest.raises(UsageError, match="cannot be written") as caught:
            save_chart(path, CHART)
        assert caught.value.where == str(path)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [(there.name, "before")]


def test_another_kind_of_file_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match="no picture") as caught:
        check_picture_path("x.pdf")
    assert all(kind in caught.value.next_step for kind in WRITERS)

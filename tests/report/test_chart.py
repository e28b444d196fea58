"""Charts: marks of axes, and the files that charts are drawn into."""

import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import MissingExtra, UsageError
from neaptide.report.chart import Axis, Box, Chart, Key, Line, Plot, byte_marks, count_marks
from neaptide.report.chart_file import check_picture_path, save_chart
from neaptide.report.chart_svg import chart_svg
from together import together

PLOT = Plot(Axis(0, 10), Axis(0, 4), (Box(0, 5, 0, 2, "#111"),), (Line(((0, 1), (10, 3)), "#222"),))
CHART = Chart("title & <more>", "summary", (PLOT,), (Key("key", "#222"),))


@together(
    ("most", "labels"),
    [
        (5, ["0", "1 B", "2 B", "3 B", "4 B", "5 B"]),
        (1300 << 20, ["0", "200 MiB", "400 MiB", "600 MiB", "800 MiB", "1000 MiB", "1200 MiB"]),
        (3 << 30, ["0", "500 MiB", "1000 MiB", "1500 MiB", "2000 MiB", "2500 MiB", "3000 MiB"]),
        (5 << 30, ["0", "1 GiB", "2 GiB", "3 GiB", "4 GiB", "5 GiB"]),
        (1, ["0", "1 B"]),
        (0, ["0"]),
    ],
)
def test_marks_are_round(most, labels):
    assert [label for _, label in byte_marks(most)] == labels


@given(st.integers(1, 1 << 59))
def test_there_are_a_few_marks_that_reach_most_of_the_axis(most):
    places = [place for place, _ in byte_marks(most)]
    assert 2 <= len(places) <= 7
    assert places[0] == 0
    assert most // 2 < places[-1] <= most
    assert len({b - a for a, b in pairwise(places)}) == 1


@together(("first", "last"), [(0, 1), (2, 64), (16, 4096), (1, 10**9)])
def test_counts_are_marked_within_the_range_and_apart(first, last):
    values = [value for value, _ in count_marks(first, last)]
    assert (values[0], values[-1]) == (first, last)
    assert values == sorted(set(values))
    assert len(values) <= 9


def test_plots_share_the_height_and_a_falling_axis_is_drawn_from_the_top():
    rows = Plot(Axis(0, 10), Axis(3, 0), (Box(0, 5, 1, 0, "#111", "first"), Box(5, 10, 3, 2, "#111", "last")))
    root = ET.fromstring(chart_svg(Chart("", "", (rows, PLOT), ())))
    first, last, below = (
        [float(rect.get(name)) for name in ("x", "y", "width", "height")]
        for rect in list(root.iter("{http://www.w3.org/2000/svg}rect"))[1:]
    )
    assert first[3] == pytest.approx(last[3], abs=0.02)
    assert first[1] + 2 * first[3] == pytest.approx(last[1], abs=0.05)
    assert last[1] + last[3] < below[1]
    assert below[3] == pytest.approx(1.5 * first[3], abs=0.05)


def test_a_chart_is_written_as_svg_or_the_reason_why_not(tmp_path):
    save_chart(tmp_path / "chart.svg", CHART)
    assert (tmp_path / "chart.svg").read_text(encoding="utf-8") == chart_svg(CHART)
    with pytest.raises(UsageError, match="cannot be written"):
        save_chart(tmp_path / "none" / "chart.svg", CHART)


def test_other_suffixes_and_a_missing_extra_are_told_beforehand(monkeypatch):
    with pytest.raises(UsageError, match="no picture"):
        check_picture_path("x.pdf")

    def without_matplotlib(name, *_):
        raise ImportError(name)

    monkeypatch.setattr("neaptide.report.chart_file.importlib.import_module", without_matplotlib)
    assert check_picture_path("x.svg").name == "x.svg"
    with pytest.raises(MissingExtra, match="matplotlib"):
        check_picture_path("x.png")

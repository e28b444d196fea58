"""When storages leave and return: as numbers, as text, as SVG and as PNG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from neaptide.errors import UsageError
from neaptide.report.chart_file import save_chart
from neaptide.report.chart_svg import chart_svg
from neaptide.report.pictures import streams_chart
from neaptide.report.plan_text import plan_text
from neaptide.report.streams import Level, Streams, busy_seconds, most
from report import samples

SVG = "{http://www.w3.org/2000/svg}"
MIB = samples.MIB


def streams():
    return Streams.of(samples.staying())


def test_in_flight_is_what_was_asked_for_and_is_not_done():
    made = streams()
    assert most(made.in_flight) == Level(0.12, 12 * MIB, 2)
    assert [level.nbytes // MIB for level in made.in_flight] == [8, 12, 4, 0, 2, 0, 8, 0, 4, 0, 2, 0]
    assert most(made.on_host) == Level(0.3, 14 * MIB, 3)
    assert made.on_host[-1] == Level(0.72, 0, 0)
    assert busy_seconds(made.out) == pytest.approx(0.14)
    assert made.waited == pytest.approx(0.01)


def test_a_plan_with_stays_golden(golden):
    golden("report/plan_streams.txt", plan_text(samples.plan(samples.staying()), path="best.json") + "\n")


def test_nothing_is_told_where_nothing_waits():
    assert Streams.of(samples.program()) is None
    assert "Copies beside" not in plan_text(samples.plan())
    with pytest.raises(UsageError, match="no timeline to draw"):
        streams_chart(samples.program())


def test_each_copy_is_drawn_in_the_row_of_its_engine():
    root = ET.fromstring(chart_svg(streams_chart(samples.staying(), title="a <b>\x00")))
    bars = [bar for bar in root.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
    rows = {}
    for bar in bars:
        rows.setdefault(float(bar.get("y")), []).append(bar)
    operations, out, back = (rows[y] for y in sorted(rows))
    assert len(operations) == 3, "they run, wait, and run again"
    for row, copies in ((out, streams().out), (back, streams().back)):
        tips = [bar.find(f"{SVG}title").text for bar in row]
        assert [tip.split("\n")[0] for tip in tips] == [stay.name for stay, _ in copies]
        widths = [float(bar.get("width")) for bar in row]
        seconds = [copy.end - copy.start for _, copy in copies]
        assert widths == pytest.approx([widths[0] * s / seconds[0] for s in seconds], rel=1e-2)
    ends = [float(bar.get("x")) + float(bar.get("width")) for bar in operations]
    assert ends == pytest.approx([*(float(bar.get("x")) for bar in operations[1:]), 1180.0], abs=0.02)


def test_a_png_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    save_chart(tmp_path / "streams.png", streams_chart(samples.staying()))
    assert (tmp_path / "streams.png").read_bytes().startswith(b"\x89PNG")

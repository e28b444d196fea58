"""A layout as SVG, as PNG and in characters: every buffer where it lies."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.ir.values import Kind
from neaptide.layout.problem import Buffer, Gap, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.report.chart_file import save_chart
from neaptide.report.chart_svg import chart_svg
from neaptide.report.layout_text import layout_text
from neaptide.report.pictures import kind_colours, layout_chart
from neaptide_corpus.layouts import random_layout, training_shaped
from together import together

SVG = "{http://www.w3.org/2000/svg}"
LOW = Buffer("low", 0, 10, 100, kind="activation")
HIGH = Buffer("high & <dry>", 5, 10, 300, kind="gradient")
PROBLEM = LayoutProblem((LOW, HIGH), "two")
PLACED = Layout((0, 100), 400)


def stacked(problem):
    """Nothing shares a byte: legal for every problem."""
    offsets, top = [], 0
    for buffer in problem.buffers:
        offsets.append(-(-top // buffer.alignment) * buffer.alignment)
        top = offsets[-1] + buffer.nbytes
    return Layout.of(problem, tuple(offsets))


def problem_of(rows):
    return LayoutProblem(tuple(Buffer(**row._asdict()) for row in rows))


def layout_svg(*args, **options):
    return chart_svg(layout_chart(*args, **options))


def boxes(svg):
    """Rectangles with a tooltip, by the first line of it."""
    found = {}
    for rect in ET.fromstring(svg).iter(f"{SVG}rect"):
        tip = rect.find(f"{SVG}title")
        if tip is not None:
            box = tuple(float(rect.get(name)) for name in ("x", "y", "width", "height"))
            found.setdefault(tip.text.split("\n")[0], []).append((box, tip.text))
    return found


def test_rectangles_lie_at_their_steps_and_offsets():
    found = boxes(layout_svg(PROBLEM, PLACED))
    [((x, y, width, height), tip)] = found["low (activation)"]
    [((x2, y2, width2, height2), tip2)] = found["high & <dry> (gradient)"]
    assert width == pytest.approx(2 * width2)
    assert height2 == pytest.approx(3 * height)
    assert x2 == pytest.approx(x + width / 2)
    assert y2 + height2 == pytest.approx(y)
    assert tip == "low (activation)\n100 B, 100 bytes\nsteps [0, 10)\noffset 0"
    assert "offset 100" in tip2


def test_title_summary_and_legend():
    text = " ".join(ET.fromstring(layout_svg(PROBLEM, PLACED, title="A title")).itertext())
    assert "A title" in text
    assert "2 buffers, 400 B live at once, arena 400 B, the same" in text
    assert {"activation", "gradient", "live bytes"} <= {part.strip() for part in text.split("\n")}
    assert "25.00% above it" in layout_svg(PROBLEM, Layout((0, 200), 500))


def test_gaps_leave_holes():
    problem = LayoutProblem((Buffer("b", 0, 9, 8, gaps=(Gap(2, 4), Gap(5, 6, (0, 4)))),))
    [*parts] = boxes(layout_svg(problem, Layout((0,), 8)))["b"]
    assert len(parts) == 4
    heights = [box[3] for box, _ in parts]
    assert heights[2] == pytest.approx(heights[0] / 2)


def test_live_line_steps_where_buffers_begin_and_end():
    paths = [path.get("d") for path in ET.fromstring(layout_svg(PROBLEM, PLACED)).iter(f"{SVG}path")]
    assert paths[-1].count("V") == 3


@together("kind", [*Kind, "workspace"])
def test_every_kind_has_its_colour_and_letter(kind):
    kinds = [*map(str, Kind), "workspace"]
    problem = LayoutProblem(tuple(Buffer(k, 0, 1, 8, kind=k) for k in kinds))
    colours = kind_colours(problem)
    assert len(set(colours.values())) == len(kinds)
    assert f'fill="{colours[kind]}"' in layout_svg(problem, stacked(problem))
    assert kind.replace("_", " ") in layout_text(problem, stacked(problem)).splitlines()[-1]


@given(st.text(), st.text())
def test_any_name_and_kind_is_well_formed(name, kind):
    problem = LayoutProblem((Buffer(name, 0, 1, 1, kind=kind),), name)
    root = ET.fromstring(layout_svg(problem, Layout((0,), 1), title=kind))
    assert root.tag == f"{SVG}svg"
    assert layout_text(problem, Layout((0,), 1))


def test_thousands_of_buffers_make_a_picture_of_some_hundred_bytes_each():
    problem = problem_of(training_shaped(3000, 0, alignment=64))
    svg = layout_svg(problem, stacked(problem))
    assert sum(map(len, boxes(svg).values())) == 3000
    assert len(svg) < 3000 * 300


def test_no_buffers():
    problem = LayoutProblem(())
    assert "0 buffers" in layout_svg(problem, Layout((), 0))
    assert layout_text(problem, Layout((), 0))


def test_png(tmp_path):
    pytest.importorskip("matplotlib")
    problem = problem_of(random_layout(30, 0))
    save_chart(tmp_path / "x.png", layout_chart(problem, stacked(problem), title="$x & _y"))
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")

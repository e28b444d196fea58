"""A layout in characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.report.layout_text import layout_text
from neaptide_corpus.layouts import perfect, random_layout


def problem_of(rows):
    return LayoutProblem(tuple(Buffer(**row._asdict()) for row in rows))


def stacked(problem):
    """Nothing shares a byte: legal for every problem without alignment."""
    offsets, top = [], 0
    for buffer in problem.buffers:
        offsets.append(top)
        top += buffer.nbytes
    return Layout(tuple(offsets), top)


def test_letters_stand_where_buffers_lie():
    low = Buffer("low", 0, 10, 100, kind="activation")
    high = Buffer("high", 5, 10, 300, kind="my kind")
    lines = layout_text(LayoutProblem((low, high)), Layout((0, 100), 400), height=4).splitlines()
    assert lines == [
        "            |.....ccccc",
        "            |.....ccccc",
        "            |.....ccccc",
        "        0 B |aaaaaaaaaa",
        "live tenths |22222XXXXX",
        "       step |0 .. 10",
        "a activation, c my kind, . free, X full",
    ]


def test_buffers_without_a_kind_are_told_apart():
    problem = LayoutProblem((Buffer("x", 0, 4, 8), Buffer("y", 0, 4, 8)))
    lines = layout_text(problem, Layout((0, 8), 16), height=2).splitlines()
    assert [line.split("|")[1] for line in lines[:2]] == ["BBBB", "AAAA"]
    assert lines[-1] == "A-Z buffers, . free, X full"


def test_a_short_peak_between_long_columns_is_shown():
    spike = Buffer("spike", 500, 501, 90, kind="workspace")
    problem = LayoutProblem((Buffer("base", 0, 1000, 10, kind="activation"), spike))
    text = layout_text(problem, Layout((0, 10), 100), width=40)
    assert "w" in text.split("\n")[0]
    assert "X" in text.splitlines()[-3]


@pytest.mark.parametrize("width", [10, 60, 200])
@given(buffers=st.integers(1, 40), seed=st.integers(0, 20), height=st.integers(1, 30))
def test_lines_keep_to_the_width(width, buffers, seed, height):
    problem = problem_of(random_layout(buffers, seed, steps=300))
    lines = layout_text(problem, stacked(problem), width=width, height=height).splitlines()
    assert len(lines) == height + 3
    assert max(map(len, lines[:-1])) <= max(width, 40)


def test_a_full_rectangle_has_no_free_place():
    rows = perfect(1, 0)
    lines = layout_text(problem_of(rows), Layout((0,), rows[0].nbytes)).splitlines()
    assert not any("." in line.split("|")[1] for line in lines[:-3])

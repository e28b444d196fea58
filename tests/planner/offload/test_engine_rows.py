"""Rows of copy engines, built up from sums: the same optimum as with every run of cells written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.linear.sparse_program import SparseProgram
from neaptide.planner.offload.engine_rows import add_engine_rows

CELLS = 5


@st.composite
def copies(draw):
    """Copies in groups of which one is made: all of a group take as long, and begin or are done in one cell."""
    found = []
    for group in range(draw(st.integers(1, 6))):
        cells = draw(st.floats(0.1, 4.0))
        value = draw(st.floats(0.1, 3.0))
        fixed, is_store = draw(st.integers(-1, CELLS)), draw(st.booleans())
        others = draw(st.lists(st.integers(-1, CELLS), min_size=1, max_size=3, unique=True))
        for other in others:
            begin, done = (fixed, max(fixed, other)) if is_store else (min(fixed, other), fixed)
            found.append((group, begin, done, cells, value))
    return found


def optimum(found, add):
    """The least cost of a program with what `add` puts into it; a waited cell costs 1."""
    group, begin, done, cells, value = (np.array(of) for of in zip(*found, strict=True))
    program = SparseProgram()
    made = program.variables(np.ones(len(found), dtype=bool))
    relief = program.variables(np.ones(CELLS, dtype=bool))
    for one in set(group.tolist()):
        program.add_row(made[group == one], np.ones(int((group == one).sum())), 1.0)
    free = add(program, made, group, begin, done, cells, relief)
    cost, high = np.zeros(program.size), np.ones(program.size)
    cost[made], cost[relief] = -value, 1.0
    high[relief] = high[free] = 1e3
    program.close(cost, np.zeros(program.size), high)
    return float(cost @ program.relax().values)


def all_runs(program, made, group, begin, done, cells, relief):
    del group
    for first in range(CELLS):
        for last in range(first, CELLS):
            inside = (begin >= first) & (done <= last)
            waits = relief[first : last + 1]
            entries = np.concatenate((cells[inside], -np.ones(len(waits))))
            program.add_row(np.concatenate((made[inside], waits)), entries, last + 1.0 - first)
    return np.zeros(0, dtype=np.int64)


@given(found=copies())
@settings(max_examples=examples(300), deadline=None)
def test_sums_that_are_built_up_say_the_same_as_all_runs(found):
    assert optimum(found, add_engine_rows) == pytest.approx(optimum(found, all_runs), abs=1e-6)


def test_a_run_with_time_for_all_of_its_copies_has_no_row():
    program = SparseProgram()
    made = program.variables(np.ones(2, dtype=bool))
    relief = program.variables(np.ones(CELLS, dtype=bool))
    place = np.array([0, 2])
    added = add_engine_rows(program, made, np.array([0, 1]), place, place + 1, np.array([1.5, 2.0]), relief)
    assert program.row_count == len(added) == 0

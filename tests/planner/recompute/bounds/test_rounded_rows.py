"""Whatever whole storages fit into the bytes obeys the rounded rows; the fractions that asked for them do not."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.planner.recompute.bounds.joint_rounds import rounded_rows
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.schedule.recompute_form import InstanceNode, from_nodes


def tables_of(sizes, needed=0):
    nodes = [InstanceNode(f"n{k}", size, []) for k, size in enumerate(sizes)]
    nodes.append(InstanceNode("last", needed, list(range(len(sizes))), out=True))
    return StepTables(from_nodes(nodes), None)


@given(
    st.lists(
        st.tuples(st.one_of(st.integers(0, 30), st.integers(1, 2**40)), st.floats(0.0, 1.0)),
        min_size=1,
        max_size=8,
    ),
    st.floats(0.0, 1.0),
    st.integers(0, 5),
)
@settings(max_examples=examples(400), deadline=None)
def test_no_choice_that_fits_is_cut_off(items, share, needed):
    sizes = [size for size, _ in items]
    tables = tables_of(sizes, needed)
    position = len(sizes)
    budget = int(share * sum(sizes)) + needed
    held = np.array([part for _, part in items] + [0.0])
    rows = rounded_rows(tables, position, budget, held, 50)
    choices = np.array(list(product((0.0, 1.0), repeat=len(sizes))))
    fitting = choices[choices @ np.array(sizes, dtype=np.float64) <= budget - needed]
    for row in rows:
        assert row.position == position
        slack = 1e-12 * max(abs(row.upper), float(np.abs(row.nbytes).sum()))
        assert row.nbytes @ held[row.storages] > row.upper
        assert (fitting @ row.nbytes <= row.upper + slack).all()


def test_of_equal_sizes_as_many_are_held_as_fit_whole():
    tables = tables_of([10, 10, 10])
    held = np.array([0.9, 0.8, 0.8, 0.0])
    row = rounded_rows(tables, 3, 25, held, 1)[0]
    # Two of three: in multiples of one storage's bytes.
    assert row.nbytes.sum() - row.upper > 0.0
    for choice, fits in (((1, 1, 0), True), ((1, 1, 1), False)):
        assert (row.nbytes @ np.array(choice, dtype=np.float64) <= row.upper + 1e-6) == fits


def test_an_answer_in_whole_numbers_asks_for_no_row():
    tables = tables_of([3, 5, 8])
    assert rounded_rows(tables, 3, 9, np.array([0.0, 0.0, 1.0, 0.0]), 9) == []

"""Which copies are worth their time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from neaptide.cost.presets import get_device
from neaptide.runtime.arena.fit import Spans

DEVICE = get_device("a100-80g")
STEPS = 12


def spans_of(*rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Spans(*columns, steps=STEPS)


def chosen(candidates, inside=(), outside=(), seconds=1e9):
    """Positions of the candidates that are copied, and the sum of both peaks before and after."""
    spans = spans_of(*candidates, *inside, *outside)
    number = np.arange(len(spans.nbytes))
    is_open = number < len(candidates)
    is_inside = ~is_open & (number < len(candidates) + len(inside))
    copied = spans.cheap_copies(is_open, is_inside, DEVICE, seconds)
    before = spans.bytes_at(is_inside).max() + spans.bytes_at(~is_inside).max()
    now = is_inside | copied
    after = spans.bytes_at(now).max() + spans.outside_at(now, copied).max()
    return np.flatnonzero(copied).tolist(), before, after


def test_a_copy_is_made_where_it_does_not_lift_the_peak():
    # At step 3 the arena is full already, and the source would lie beside its place.
    assert chosen([(3, 5, 100)], inside=[(3, 4, 50)])[0] == []
    assert chosen([(3, 8, 100)], inside=[(0, 2, 500)], outside=[(0, 2, 500)])[0] == [0]


ROWS = st.lists(
    st.tuples(st.integers(0, 10), st.integers(1, 12), st.integers(1, 50)).map(
        lambda t: (t[0], min(t[0] + t[1], STEPS), t[2])
    ),
    max_size=6,
)


@given(ROWS, ROWS, ROWS)
def test_copies_never_lift_the_sum_of_both_peaks(candidates, inside, outside):
    _, before, after = chosen(candidates, inside, outside)
    assert after <= before

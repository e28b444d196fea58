"""Marks of an axis of bytes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.report.byte_axis import byte_marks


@pytest.mark.parametrize(
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

"""Layout problems of known families: counts, shapes and smallest arenas."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.layout.bounds import arena_lower_bound, bytes_live_at, live_bytes
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide_corpus.layouts import (
    equal_sizes,
    nested,
    perfect,
    pipelined,
    random_layout,
    staggered,
    training_shaped,
)

FAMILIES = [random_layout, perfect, staggered, nested, equal_sizes, training_shaped, pipelined]


def problem_of(rows):
    return LayoutProblem(tuple(Buffer(**row._asdict()) for row in rows))


@pytest.mark.parametrize("family", FAMILIES)
@given(buffers=st.integers(8, 120), seed=st.integers(0, 99))
def test_rows_are_a_problem_and_depend_on_the_seed_alone(family, buffers, seed):
    rows = family(buffers, seed)
    problem = problem_of(rows)
    assert rows == family(buffers, seed)
    if family is staggered:
        assert len(problem) == 1 + (buffers - 1) // 4 * 4
    else:
        assert len(problem) == buffers
    assert buffers < 20 or rows != family(buffers, seed + 1)


@pytest.mark.parametrize("family", [perfect, staggered])
@given(buffers=st.integers(1, 60), seed=st.integers(0, 99))
def test_every_byte_of_a_rectangle_is_live_at_every_step(family, buffers, seed):
    problem = problem_of(family(buffers, seed, steps=50, arena_bytes=4096))
    points, total = bytes_live_at(problem)
    assert (points[0], points[-1]) == (0, 50)
    assert set(total[:-1].tolist()) == {4096}
    assert arena_lower_bound(problem) == 4096


@pytest.mark.parametrize("family", [perfect, staggered])
def test_rectangles_too_small_to_cut_end_with_fewer_pieces(family):
    assert len(family(100, 0, steps=3, arena_bytes=3)) <= 9


@given(st.integers(1, 60), st.integers(0, 99))
def test_nested_lifetimes_never_cross(buffers, seed):
    rows = sorted(nested(buffers, seed))
    for a in rows:
        for b in rows:
            assert not a.start < b.start < a.end < b.end


def test_equal_sizes_are_equal():
    assert {row.nbytes for row in equal_sizes(30, 3, nbytes=96)} == {96}


def test_training_shape_frees_in_reverse_what_the_forward_saved():
    rows = training_shaped(400, 5, alignment=64)
    assert {row.alignment for row in rows} == {64}
    assert {row.kind for row in rows} == {"activation", "gradient", "temporary", "workspace"}
    assert any(row.nbytes % 64 for row in rows)
    assert {row.end - row.start for row in rows if row.kind == "workspace"} == {1}
    steps = max(row.end for row in rows)
    large = [row for row in rows if row.kind == "activation" and row.end - row.start > 1]
    assert all(a.end >= b.end - 1 for a, b in pairwise(sorted(large, key=lambda row: row.start)))
    points, total = bytes_live_at(problem_of(rows))
    peak = int(points[total.argmax()])
    assert steps // 4 < peak < steps * 3 // 4


def test_pipelined_lifetimes_cross():
    rows = [row for row in pipelined(600, 1) if row.kind == "activation"]
    assert len(rows) == 4 * len([row for row in pipelined(600, 1) if row.kind == "workspace"])
    pairs = [(a, b) for a in rows for b in rows if a.start < b.start < a.end < b.end]
    assert len(pairs) > 10 * len(rows)


def test_large_training_shape():
    rows = training_shaped(20_000, 0)
    assert len(rows) == 20_000
    assert live_bytes(problem_of(rows)) > max(row.nbytes for row in rows) * 50

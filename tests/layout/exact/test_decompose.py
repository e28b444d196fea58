"""Taking a problem apart loses nothing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_small import (
    problem_of,
    random_plain,
    random_rich,
    smallest_arena_by_offsets,
    smallest_arena_by_order,
)
from neaptide.layout.exact.decompose import Decomposition, decompose, is_plain
from neaptide.layout.exact.rigid import RigidSearch
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import LimitGuard, Limits


def leaf_problem(decomposition: Decomposition, index: int) -> LayoutProblem:
    buffers = decomposition.problem.buffers
    return LayoutProblem(tuple(buffers[i] for i in decomposition.pieces[index].leaf))


@given(st.integers(0, 10**9), st.sampled_from([1, 4]))
def test_best_leaves_make_the_best_whole(seed, alignment):
    problem = random_plain(random.Random(seed), 6, steps=8, size=9, alignment=alignment)
    decomposition = decompose(problem)
    assert sorted(
        i for p in decomposition.pieces for i in (*p.stack, *p.leaf, *(() if p.crown is None else (p.crown,)))
    ) == list(range(len(problem)))
    arenas, offsets = {}, {}
    for index in decomposition.leaves():
        leaf = leaf_problem(decomposition, index)
        arenas[index] = smallest_arena_by_order(leaf)
        found = RigidSearch(leaf).decide(arenas[index], LimitGuard(Limits()))
        offsets[index] = found.offsets
    layout = Layout.of(problem, decomposition.assemble(offsets))
    check_layout(problem, layout)
    smallest = smallest_arena_by_order(problem)
    assert layout.arena_bytes == smallest == decomposition.lower_bound(arenas)
    assert all(arena <= decomposition.capacities(smallest)[index] for index, arena in arenas.items())
    below = decomposition.capacities(smallest - 1)
    assert (
        not arenas
        or decomposition.lower_bound(dict.fromkeys(arenas, 0)) == smallest
        or any(arena > below[index] for index, arena in arenas.items())
    )


@given(st.integers(0, 10**9))
def test_rich_problems_are_only_cut_in_time(seed):
    problem = random_rich(random.Random(seed), 4)
    decomposition = decompose(problem)
    if is_plain(problem):
        return
    assert not any(piece.stack or piece.crown is not None for piece in decomposition.pieces)
    arenas = {i: smallest_arena_by_offsets(leaf_problem(decomposition, i)) for i in decomposition.leaves()}
    assert decomposition.lower_bound(arenas) == smallest_arena_by_offsets(problem)


def test_nested_lifetimes_leave_nothing_to_search():
    problem = problem_of(*((i, 400 - i, 1 + i % 7) for i in range(200)))
    decomposition = decompose(problem)
    assert decomposition.leaves() == []
    layout = Layout.of(problem, decomposition.assemble({}))
    check_layout(problem, layout)
    assert layout.arena_bytes == sum(1 + i % 7 for i in range(200))


@pytest.mark.parametrize("alignment", [1, 8])
def test_the_crown_lies_where_its_padding_is_saved(alignment):
    # The whole-life buffer of 3 bytes above the one of 8, not below it.
    problem = problem_of((0, 4, 3), (0, 2, 8), (2, 4, 8), alignment=alignment)
    decomposition = decompose(problem)
    layout = Layout.of(problem, decomposition.assemble(dict.fromkeys(decomposition.leaves(), (0,))))
    check_layout(problem, layout)
    assert layout.arena_bytes == 11

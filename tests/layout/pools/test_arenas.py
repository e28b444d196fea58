import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_play import random_problem
from neaptide.errors import LayoutProblemError, VerifyError
from neaptide.layout.bounds import live_bytes
from neaptide.layout.pools.arenas import Packing, pack_quickly, split_into_arenas
from neaptide.layout.problem import Buffer, LayoutProblem
from pool_play import check_packing


@given(st.integers(0, 10**9), st.integers(0, 60), st.integers(0, 200))
def test_arenas_are_legal_small_enough_and_hold_everything(seed, more, capacity):
    problem = random_problem(seed, 30)
    most = max((b.offset or 0) + b.nbytes for b in problem.buffers) + more
    packing = split_into_arenas(problem, most)
    check_packing(problem, packing)
    assert max(packing.arena_bytes) <= most
    assert packing.nbytes >= live_bytes(problem)
    assert set(packing.arenas) == set(range(len(packing.arena_bytes)))
    assert all(
        packing.arenas[index] == 0 and packing.offsets[index] == buffer.offset
        for index, buffer in enumerate(problem.buffers)
        if buffer.offset is not None
    )
    within = split_into_arenas(problem, most, capacity)
    assert within == (packing if packing.nbytes <= capacity else None)
    quick = pack_quickly(problem, capacity, most)
    assert quick is None or (quick.nbytes <= capacity and max(quick.arena_bytes) <= most)


@given(st.integers(0, 10**9), st.integers(0, 80))
def test_one_arena_within_a_capacity(seed, capacity):
    problem = random_problem(seed, 30)
    packing = pack_quickly(problem, capacity)
    if packing is not None:
        check_packing(problem, packing)
        assert packing.nbytes <= capacity
        assert len(packing.arena_bytes) == 1
    unlimited = pack_quickly(problem)
    check_packing(problem, unlimited)


def test_one_arena_where_it_is_enough():
    problem = LayoutProblem((Buffer("a", 0, 1, 6), Buffer("b", 0, 1, 6), Buffer("c", 1, 2, 10)))
    assert pack_quickly(problem, 12, 12).arena_bytes == (12,)
    assert pack_quickly(problem, 16, 10).arena_bytes == (10, 6)
    assert pack_quickly(problem, 15, 10) is None
    assert pack_quickly(LayoutProblem(()), 0, 0) == Packing((), (), ())


def test_a_buffer_larger_than_an_arena_is_named():
    with pytest.raises(LayoutProblemError, match="buffer 'a' does not fit an arena of 5 bytes"):
        split_into_arenas(LayoutProblem((Buffer("a", 0, 1, 6),)), 5)


def test_a_clash_inside_an_arena_is_found():
    problem = LayoutProblem((Buffer("a", 0, 1, 6), Buffer("b", 0, 1, 6)))
    check_packing(problem, Packing((0, 1), (0, 0), (6, 6)))
    with pytest.raises(VerifyError, match="clash"):
        check_packing(problem, Packing((0, 0), (0, 0), (6,)))

from hypothesis import assume, given
from hypothesis import strategies as st

from layout_play import random_problem
from neaptide.layout.pools.banked import place_banked_greedy
from neaptide.layout.pools.check import check_pooled_layout
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide_peers.layouts.shared_objects import place_executorch
from pool_play import random_pools


@given(st.integers(0, 10**9))
def test_one_bank_is_planned_as_by_greedy(seed):
    problem = random_problem(seed, 20, gaps=False)
    pooled = PooledProblem(problem, (MemorySpace("only"),))
    layout = place_banked_greedy(pooled)
    assert tuple(place.offset for place in layout.places) == place_executorch(problem).offsets


@given(st.integers(0, 10**9))
def test_banks_are_legal(seed):
    pooled = random_pools(seed, 20, gaps=True, fixed=True, arenas=True)
    assume(pooled is not None)
    layout = place_banked_greedy(pooled)
    if layout is not None:
        check_pooled_layout(pooled, layout)


def test_the_fastest_bank_that_holds_it_and_pins_first():
    buffers = (Buffer("large", 0, 4, 10), Buffer("small", 0, 4, 4), Buffer("pinned", 0, 4, 3))
    spaces = (MemorySpace("slow", 20, 9), MemorySpace("fast", 10, 1))
    pooled = PooledProblem(LayoutProblem(buffers), spaces, allowed={"pinned": ["fast"]})
    layout = place_banked_greedy(pooled)
    assert [place.space for place in layout.places] == [0, 1, 1]
    assert layout.arena_bytes == ((10,), (7,))
    full = PooledProblem(
        LayoutProblem(buffers), (MemorySpace("slow", 11, 9), spaces[1]), allowed={"small": ["slow"]}
    )
    assert place_banked_greedy(full) is not None
    tight = PooledProblem(
        LayoutProblem((*buffers, Buffer("more", 0, 4, 10))), (MemorySpace("slow", 16, 9), spaces[1])
    )
    assert place_banked_greedy(tight) is None

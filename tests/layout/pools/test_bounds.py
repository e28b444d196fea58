from hypothesis import assume, given
from hypothesis import strategies as st

from layout_play import random_problem
from neaptide.layout.bounds import live_bytes
from neaptide.layout.pools.bounds import SectionLoads, cost_bound, excluded_space
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import Buffer, Gap, LayoutProblem
from pool_play import cheapest, random_pools


@given(st.integers(0, 10**9))
def test_nothing_costs_less_than_the_bound(seed):
    pooled = random_pools(seed, 5)
    assume(pooled is not None)
    best = cheapest(pooled)
    reason = excluded_space(pooled, SectionLoads(pooled.problem))
    assert best is None or (reason is None and cost_bound(pooled).cost <= best)


@given(st.integers(0, 10**9))
def test_loads_are_live_bytes(seed):
    problem = random_problem(seed, 20)
    sections = SectionLoads(problem)
    members = list(range(len(problem)))
    loads = sections.of(members)
    assert int(loads.max()) == live_bytes(problem)
    for index in members:
        peak = int(loads.max())
        assert not sections.has_room(loads, index, peak) or peak < 2 * int(loads.max())
        sections.change(loads, index, -1)
        assert sections.has_room(loads, index, peak)
    assert not loads.any()


def test_the_linear_program_sees_that_not_everything_fits():
    buffers = (Buffer("a", 0, 2, 10), Buffer("b", 1, 3, 10), Buffer("c", 2, 4, 10))
    spaces = (MemorySpace("fast", 15, 1), MemorySpace("slow", None, 3))
    pooled = PooledProblem(LayoutProblem(buffers), spaces)
    bound = cost_bound(pooled)
    # Five bytes of the middle buffer go to the slow space: 25 in the fast one, 5 at three.
    assert bound.cost == 25 + 15
    assert cheapest(pooled) == 20 + 30
    assert set(bound.prices) == {0}
    assert bound.price(SectionLoads(pooled.problem), 1, 1) == 0


def test_without_a_capacity_or_costs_the_cheapest_space_counts():
    problem = LayoutProblem((Buffer("a", 0, 2, 10), Buffer("b", 1, 3, 10)))
    free = PooledProblem(problem, (MemorySpace("fast", None, 1), MemorySpace("slow", None, 3)))
    assert cost_bound(free).cost == 20
    assert cost_bound(PooledProblem(problem, (MemorySpace("x", 10),))).cost == 0
    assert cost_bound(PooledProblem(LayoutProblem(()), (MemorySpace("x", 10, 1),))).cost == 0


def test_gaps_leave_room():
    buffers = (Buffer("a", 0, 4, 10, gaps=(Gap(1, 3, (0, 2)),)), Buffer("b", 1, 3, 8))
    pooled = PooledProblem(LayoutProblem(buffers), (MemorySpace("fast", 10, 1), MemorySpace("slow", None, 3)))
    assert cost_bound(pooled).cost == 18
    sections = SectionLoads(pooled.problem)
    assert [sections.covers(0, section) for section in range(sections.count)] == [True, True, True]
    assert [sections.covers(1, section) for section in range(sections.count)] == [False, True, False]

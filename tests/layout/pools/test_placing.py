from hypothesis import assume, given, settings
from hypothesis import strategies as st

from layout.layout_play import from_rows, random_problem
from layout.pools.pool_play import KIB, cheapest, check_packing, microcontroller, random_pools
from neaptide.layout.best_layout import best_layout
from neaptide.layout.bounds import live_bytes
from neaptide.layout.pools.bounds import SectionLoads, cost_bound, excluded_space
from neaptide.layout.pools.placing import Packing, pack_by_rules, place_in_spaces
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem, check_pooled_layout
from neaptide.layout.problem import Buffer, Gap, LayoutProblem
from neaptide.outcome import Limits, TerminationReason
from neaptide_corpus.layouts import staggered
from support.drawn import examples


def test_a_microcontroller_with_sram_and_psram():
    pooled = microcontroller()
    assert live_bytes(pooled.problem) > 256 * KIB
    outcome = place_in_spaces(pooled)
    layout = outcome.require()
    check_pooled_layout(pooled, layout)
    assert layout.space_bytes(0) <= 256 * KIB
    spilled = {pooled.problem.buffers[index].name for index in layout.members(1)}
    assert spilled
    assert {f"weight{step}" for step in range(12, 16)} < spilled  # each is larger than the SRAM
    assert len(spilled) < 12
    everything_outside = sum(costs[1] for costs in pooled.costs)
    assert layout.cost < 0.5 * everything_outside
    assert outcome.termination.bound <= layout.cost <= 1.15 * outcome.termination.bound
    assert layout.cost < 0.9 * 77_495_296  # of ExecuTorch's `banked_greedy`


@given(st.integers(0, 10**9))
def test_every_choice_tried(seed):
    pooled = random_pools(seed)
    assume(pooled is not None)
    best = cheapest(pooled)
    outcome = place_in_spaces(pooled)
    ended = outcome.termination
    if outcome.value is None:
        if ended.reason is TerminationReason.INFEASIBLE:
            assert best is None
            assert ended.detail
        return
    check_pooled_layout(pooled, outcome.value)
    assert best is not None
    assert ended.bound <= best <= outcome.value.cost == ended.best
    assert (ended.reason is TerminationReason.OPTIMAL) == (ended.bound == ended.best)


def test_most_small_problems_are_solved_to_the_optimum():
    solved = feasible = 0
    count = examples(150)
    for seed in range(count):
        pooled = random_pools(seed, 5)
        best = None if pooled is None else cheapest(pooled)
        if best is not None:
            feasible += 1
            found = place_in_spaces(pooled).value
            solved += found is not None and found.cost == best
    assert feasible > 0.5 * count
    assert solved >= 0.9 * feasible


@settings(max_examples=examples(40))
@given(st.integers(0, 10**9))
def test_larger_problems_with_gaps_fixed_buffers_and_several_arenas(seed):
    pooled = random_pools(seed, 25, gaps=True, fixed=True, arenas=True)
    assume(pooled is not None)
    outcome = place_in_spaces(pooled)
    if outcome.value is None:
        return
    check_pooled_layout(pooled, outcome.value)
    assert outcome.termination.bound <= outcome.value.cost


def test_what_is_accessed_most_for_its_room_stays_in_the_fast_space():
    buffers = (Buffer("hot", 0, 4, 8), Buffer("long", 0, 4, 8), Buffer("a", 0, 1, 8), Buffer("b", 2, 4, 8))
    spaces = (MemorySpace("fast", 16, 1), MemorySpace("slow", None, 5))
    pooled = PooledProblem(LayoutProblem(buffers), spaces, {"hot": 9, "a": 2, "b": 2, "long": 3})
    outcome = place_in_spaces(pooled)
    # `long` alone is worth more than `a` or `b`; both together are worth more than `long`.
    assert outcome.require().members(1) == (1,)
    assert outcome.termination.reason is TerminationReason.OPTIMAL


def test_several_arenas_of_a_size():
    buffers = tuple(Buffer(str(index), 0, 2, 6) for index in range(5))
    device = MemorySpace("device", 40, 1, max_arena_bytes=13)
    layout = place_in_spaces(PooledProblem(LayoutProblem(buffers), (device,))).require()
    assert layout.arena_bytes == ((12, 12, 6),)
    two = place_in_spaces(PooledProblem(LayoutProblem(buffers), (device, MemorySpace("host", None, 9))))
    assert two.require().members(1) == ()


def test_bytes_at_one_step_prove_that_there_is_no_layout():
    buffers = (Buffer("a", 0, 2, 6), Buffer("b", 1, 2, 6))
    problem = LayoutProblem(buffers)
    pinned = {"a": ["fast"], "b": ["fast"]}
    spaces = (MemorySpace("fast", 10, 1), MemorySpace("slow", None, 2))
    ended = place_in_spaces(PooledProblem(problem, spaces, allowed=pinned)).termination
    assert ended.reason is TerminationReason.INFEASIBLE
    assert ended.detail == "the buffers that must lie in 'fast' have 12 bytes at one step"
    small = (MemorySpace("fast", 6, 1), MemorySpace("slow", 5, 2))
    alone = LayoutProblem((*buffers[:1], Buffer("b", 1, 2, 5), Buffer("c", 1, 2, 1)))
    ended = place_in_spaces(PooledProblem(alone, small)).termination
    assert ended.detail == "12 bytes are in use at one step, all spaces together have 11"


def test_no_buffers():
    outcome = place_in_spaces(PooledProblem(LayoutProblem(()), (MemorySpace("only", 0),)))
    assert outcome.require().arena_bytes == ((),)
    assert outcome.termination.reason is TerminationReason.OPTIMAL


def test_a_search_finds_what_the_rules_do_not():
    problem = from_rows(staggered(40, 2))
    smallest = best_layout(problem, Limits(work=20_000)).require().arena_bytes
    assert pack_by_rules(problem, smallest, None) is None
    pooled = PooledProblem(problem, (MemorySpace("x", smallest),))
    check_pooled_layout(pooled, place_in_spaces(pooled).require())


@given(st.integers(0, 10**9), st.integers(0, 60), st.integers(0, 200))
def test_arenas_are_legal_small_enough_and_hold_everything(seed, more, capacity):
    problem = random_problem(seed, 30)
    most = max((b.offset or 0) + b.nbytes for b in problem.buffers) + more
    packing = pack_by_rules(problem, None, most)
    check_packing(problem, packing)
    assert max(packing.arena_bytes) <= most
    assert sum(packing.arena_bytes) >= live_bytes(problem)
    assert set(packing.arenas) == set(range(len(packing.arena_bytes)))
    for index, buffer in enumerate(problem.buffers):
        if buffer.offset is not None:
            assert (packing.arenas[index], packing.offsets[index]) == (0, buffer.offset)
    for within in (pack_by_rules(problem, capacity, most), pack_by_rules(problem, capacity, None)):
        assert within is None or sum(within.arena_bytes) <= capacity


def test_one_arena_where_it_is_enough():
    problem = LayoutProblem((Buffer("a", 0, 1, 6), Buffer("b", 0, 1, 6), Buffer("c", 1, 2, 10)))
    assert pack_by_rules(problem, 12, 12).arena_bytes == (12,)
    assert pack_by_rules(problem, 16, 10).arena_bytes == (10, 6)
    assert pack_by_rules(problem, 15, 10) is None
    assert pack_by_rules(LayoutProblem(()), 0, 0) == Packing()


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

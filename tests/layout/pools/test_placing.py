import threading

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.layout.bounds import live_bytes
from neaptide.layout.pools.banked import place_banked_greedy
from neaptide.layout.pools.check import check_pooled_layout
from neaptide.layout.pools.placing import place_in_spaces
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.outcome import Limits, TerminationReason
from pool_play import KIB, cheapest, microcontroller, random_pools


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
    banked = place_banked_greedy(pooled)
    assert layout.cost < 0.9 * banked.cost


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
    banked = place_banked_greedy(pooled)
    if outcome.value is None:
        assert banked is None
        return
    check_pooled_layout(pooled, outcome.value)
    assert banked is None or outcome.value.cost <= banked.cost
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


def test_limits_and_interrupts_keep_the_first_answer():
    pooled = random_pools(30, 40) or microcontroller()
    stop = threading.Event()
    stop.set()
    assert place_in_spaces(pooled, None, stop).value is not None
    short = place_in_spaces(pooled, Limits(work=1))
    assert short.value is not None
    assert place_in_spaces(pooled, Limits(work=1)).value == short.value
    assert place_in_spaces(pooled).require().cost <= short.value.cost

import threading

import pytest

from layout_small import NINE, problem_of
from neaptide.errors import UsageError, VerifyError
from neaptide.layout.pools.placing import place_in_spaces
from neaptide.layout.pools.spaces import MemorySpace, Place, PooledLayout, PooledProblem, check_pooled_layout
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.outcome import Limits, TerminationReason
from neaptide_peers.cp_sat import process
from neaptide_peers.layouts.pooled_cp_sat import MOST_BUFFERS, place_with_cp_sat
from pool_play import cheapest, microcontroller, random_pools

needs_ortools = pytest.mark.skipif(not process.is_installed(), reason="needs ortools")


@needs_ortools
def test_every_choice_tried():
    for seed in range(8):
        pooled = random_pools(seed, 5)
        if pooled is None:
            continue
        outcome = place_with_cp_sat(pooled)
        best = cheapest(pooled)
        if best is None:
            assert outcome.termination.reason is TerminationReason.INFEASIBLE
        else:
            assert outcome.termination.reason is TerminationReason.OPTIMAL
            assert outcome.require().cost == best == outcome.termination.bound


@needs_ortools
def test_no_layout_where_bytes_would_fit():
    """Nine buffers with at most 8 bytes live, which no arena of 8 holds, in one space and in two that hold less."""
    nine = problem_of(*NINE)
    outcome = place_with_cp_sat(PooledProblem(nine, (MemorySpace("x", 8, 1),)))
    assert outcome.termination.reason is TerminationReason.INFEASIBLE
    two = PooledProblem(nine, (MemorySpace("x", 8, 1), MemorySpace("y", 1, 2)))
    assert place_with_cp_sat(two).require().members(1)


@needs_ortools
def test_gaps_and_fixed_buffers():
    for seed in range(5):
        pooled = random_pools(seed, 12, gaps=True, fixed=True)
        if pooled is None:
            continue
        filled = place_in_spaces(pooled)
        exact = place_with_cp_sat(pooled, hint=filled.value)
        if exact.value is None:
            assert filled.value is None
            continue
        check_pooled_layout(pooled, exact.value)
        assert exact.termination.reason is TerminationReason.OPTIMAL
        assert filled.termination.bound <= exact.value.cost
        assert filled.value is None or exact.value.cost <= filled.value.cost


@needs_ortools
def test_a_microcontroller_is_solved_to_the_optimum():
    pooled = microcontroller()
    filled = place_in_spaces(pooled)
    exact = place_with_cp_sat(pooled, Limits(time_s=60), hint=filled.value)
    assert exact.termination.reason is TerminationReason.OPTIMAL
    assert exact.require().cost <= filled.require().cost <= 1.02 * exact.require().cost


def test_a_hint_that_meets_the_bound_is_the_answer():
    pooled = PooledProblem(LayoutProblem((Buffer("a", 0, 1, 4),)), (MemorySpace("x", 8, 1),))
    known = PooledLayout((Place(0, 0, 0),), ((4,),), 4)
    outcome = place_with_cp_sat(pooled, hint=known)
    assert outcome.value == known
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    with pytest.raises(VerifyError, match="said to cost 5"):
        place_with_cp_sat(pooled, hint=PooledLayout((Place(0, 0, 0),), ((4,),), 5))


def test_no_buffers_and_no_room():
    empty = PooledProblem(LayoutProblem(()), (MemorySpace("x", 0),))
    assert place_with_cp_sat(empty).require().places == ()
    full = PooledProblem(LayoutProblem((Buffer("a", 0, 1, 4), Buffer("b", 0, 1, 4))), (MemorySpace("x", 7),))
    assert place_with_cp_sat(full).termination.reason is TerminationReason.INFEASIBLE


@needs_ortools
def test_limits_and_interrupts_leave_the_hint():
    pooled = microcontroller()
    hint = place_in_spaces(pooled).require()
    stop = threading.Event()
    stop.set()
    for outcome, reason in (
        (place_with_cp_sat(pooled, Limits(time_s=0.0), hint=hint), TerminationReason.FEASIBLE),
        (place_with_cp_sat(pooled, interrupt=stop, hint=hint), TerminationReason.INTERRUPTED),
    ):
        assert outcome.value == hint
        assert outcome.termination.reason is reason
        assert outcome.termination.bound < outcome.termination.best == hint.cost


def test_what_the_model_does_not_take():
    many = LayoutProblem(tuple(Buffer(str(index), 0, 1, 1) for index in range(MOST_BUFFERS + 1)))
    with pytest.raises(UsageError, match="takes 200 buffers at most, not 201"):
        place_with_cp_sat(PooledProblem(many, (MemorySpace("x"),)))
    with pytest.raises(UsageError, match="no limit to the size of an arena"):
        place_with_cp_sat(PooledProblem(LayoutProblem(()), (MemorySpace("x", max_arena_bytes=8),)))

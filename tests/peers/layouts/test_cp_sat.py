"""Layouts by CP-SAT, in one arena and in several memories."""

import random
import threading
from dataclasses import replace

import pytest

from layout.layout_small import NINE, problem_of, random_rich, smallest_arena_by_offsets
from layout.pools.pool_play import cheapest, microcontroller, random_pools
from neaptide.errors import MissingExtra, UsageError, VerifyError
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.pools.placing import place_in_spaces
from neaptide.layout.pools.spaces import MemorySpace, Place, PooledLayout, PooledProblem, check_pooled_layout
from neaptide.layout.problem import Buffer, Gap, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import Limits, TerminationReason
from neaptide_peers.cp_sat import process
from neaptide_peers.cp_sat.solve import solve_all
from neaptide_peers.layouts.cp_model import compressed_steps, layout_model, unit_bytes
from neaptide_peers.layouts.cp_sat import fit_with_cp_sat, minimise_with_cp_sat
from neaptide_peers.layouts.pooled_cp_sat import MOST_BUFFERS, place_with_cp_sat

needs_ortools = pytest.mark.skipif(not process.is_installed(), reason="needs ortools")


def scaled(problem, scale):
    """The problem with all numbers of bytes times a power of two."""

    def times(gap):
        return replace(gap, window=gap.window and tuple(scale * edge for edge in gap.window))

    return LayoutProblem(
        tuple(
            replace(
                b,
                nbytes=scale * b.nbytes,
                alignment=scale * b.alignment,
                offset=None if b.offset is None else scale * b.offset,
                gaps=tuple(map(times, b.gaps)),
            )
            for b in problem.buffers
        )
    )


def nine(scale=1):
    return problem_of(*((start, end, scale * size) for start, end, size in NINE))


def end_to_end(problem):
    return minimise_with_cp_sat(problem, Limits(work=0)).value


def test_steps_are_cut_down_to_complete_sets():
    rng = random.Random(5)
    for _ in range(200):
        spans = [(a, a + rng.randint(1, 5)) for a in (rng.randint(0, 9) for _ in range(rng.randint(1, 7)))]
        short = compressed_steps(spans)
        steps = range(max(end for _, end in short))
        sets = [{k for k, (a, b) in enumerate(short) if a <= step < b} for step in steps]
        assert all(a < b for a, b in short)
        for k, (a, b) in enumerate(spans):
            for j, (c, d) in enumerate(spans):
                meet = a < d and c < b
                assert meet == (short[k][0] < short[j][1] and short[j][0] < short[k][1])
        assert not any(one <= other for i, one in enumerate(sets) for other in (*sets[:i], *sets[i + 1 :]))


def test_the_unit_of_bytes():
    def unit(*buffers):
        return unit_bytes(LayoutProblem(tuple(Buffer(str(i), 0, 2, *b) for i, b in enumerate(buffers))))

    assert unit((192,), (384,)) == 192
    assert unit((192, 64), (384, 1)) == 192
    assert unit((192, 128), (384, 1)) == 64
    assert unit((192, 1, 64), (384,)) == 64
    assert unit((192, 1, None, (Gap(0, 1, (48, 96)),))) == 48
    assert unit_bytes(LayoutProblem(())) == 1


@needs_ortools
def test_random_problems_against_brute_force():
    cases = []
    for seed in range(120):
        scale = (1, 2, 4)[seed % 3]
        small = random_rich(random.Random(seed), 5)
        least = scale * smallest_arena_by_offsets(small)
        problem = scaled(small, scale)
        upper = end_to_end(problem)
        cases.append((problem, least, layout_model(problem, upper.arena_bytes, lower_bytes=0, hint=upper)))
        cases.append((problem, least, layout_model(problem, least, with_cumulative=seed % 2 == 0)))
        if least > arena_lower_bound(problem):
            cases.append((problem, None, layout_model(problem, least - 1)))
    outcomes = solve_all([modelled.model for _, _, modelled in cases])
    for (problem, least, modelled), outcome in zip(cases, outcomes, strict=True):
        if least is None:
            assert outcome.termination.reason is TerminationReason.INFEASIBLE
            continue
        assert outcome.termination.reason is TerminationReason.OPTIMAL
        layout = modelled.layout(problem, outcome.value.values)
        check_layout(problem, layout, capacity_bytes=least)
        assert layout.arena_bytes == least
    assert sum(least is None for _, least, _ in cases) > 5


@needs_ortools
@pytest.mark.parametrize("scale", [1, 96])
def test_nine_buffers_whose_arena_is_above_their_live_bytes(scale):
    problem = nine(scale)
    assert arena_lower_bound(problem) == 8 * scale
    refuted = fit_with_cp_sat(problem, 9 * scale - 1)
    assert refuted.value is None
    assert refuted.termination.reason is TerminationReason.INFEASIBLE
    assert refuted.termination.bound == 9 * scale
    fitted = fit_with_cp_sat(problem, 10 * scale - 1, with_cumulative=True)
    assert fitted.value.arena_bytes == 9 * scale
    assert fitted.termination.reason is TerminationReason.FEASIBLE
    smallest = minimise_with_cp_sat(problem, hint=fitted.value, workers=2)
    assert smallest.termination.reason is TerminationReason.OPTIMAL
    assert (smallest.termination.best, smallest.termination.bound) == (9 * scale, 9 * scale)
    check_layout(problem, smallest.value)


def test_what_needs_no_solver(monkeypatch):
    monkeypatch.setattr(process, "is_installed", lambda: False)
    empty = LayoutProblem(())
    assert fit_with_cp_sat(empty, 0).value == minimise_with_cp_sat(empty).value == Layout((), 0)
    refuted = fit_with_cp_sat(nine(), 7).termination
    assert (refuted.reason, refuted.bound) == (TerminationReason.INFEASIBLE, 8)
    stack = LayoutProblem((Buffer("a", 0, 2, 3), Buffer("b", 1, 2, 4, 4)))
    assert minimise_with_cp_sat(stack, hint=Layout((4, 0), 7)).termination.reason is TerminationReason.OPTIMAL
    with pytest.raises(MissingExtra):
        fit_with_cp_sat(nine(), 9)
    with pytest.raises(VerifyError):
        minimise_with_cp_sat(stack, hint=Layout((0, 0), 4))


def test_without_an_answer_nothing_is_proved():
    interrupt = threading.Event()
    interrupt.set()
    ended = fit_with_cp_sat(nine(), 8, Limits(work=0)).termination
    assert (ended.reason, ended.limit) == (TerminationReason.NO_SOLUTION_FOUND, "work")
    ended = fit_with_cp_sat(nine(), 8, None, interrupt).termination
    assert (ended.reason, ended.best, ended.bound) == (TerminationReason.INTERRUPTED, None, 8)
    outcome = minimise_with_cp_sat(nine(), Limits(time_s=0.0))
    assert (outcome.termination.reason, outcome.termination.limit) == (TerminationReason.FEASIBLE, "time")
    assert (outcome.termination.best, outcome.termination.bound) == (18, 8)
    check_layout(nine(), outcome.value)
    outcome = minimise_with_cp_sat(nine(), None, interrupt)
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    huge = [*nine(1 << 57).buffers, Buffer("odd", 0, 1, 1)]
    outcome = minimise_with_cp_sat(LayoutProblem(tuple(huge)))
    assert outcome.termination.reason is TerminationReason.FEASIBLE
    assert "64 bits" in outcome.termination.detail


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

import random
import threading
from dataclasses import replace

import pytest

from layout_small import NINE, problem_of, random_rich, smallest_arena_by_offsets
from neaptide.errors import MissingExtra, VerifyError
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.problem import Buffer, Gap, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import Limits, TerminationReason
from neaptide_peers.cp_sat import process
from neaptide_peers.cp_sat.solve import solve_all
from neaptide_peers.layouts.cp_model import compressed_steps, layout_model, unit_bytes
from neaptide_peers.layouts.cp_sat import fit_with_cp_sat, minimise_with_cp_sat

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

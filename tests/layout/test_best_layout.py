"""The portfolio: optimal where it says so, refuted where it says so, and honest where it ran out."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layout.layout_small import (
    NINE,
    problem_of,
    random_plain,
    random_rich,
    smallest_arena_by_offsets,
    smallest_arena_by_order,
)
from neaptide.errors import VerifyError
from neaptide.layout.best_layout import STAGES, best_layout
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.result import Certificate, Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import Limits, TerminationReason
from neaptide_peers.layouts.rules import ALL_RULES as RULES
from support.drawn import examples


def check_plain(seed: int) -> None:
    rng = random.Random(seed)
    problem = random_plain(rng, 7, size=rng.choice([3, 9]), alignment=rng.choice([1, 1, 4]))
    check_answers(problem, smallest_arena_by_order(problem))


def check_answers(problem: LayoutProblem, smallest: int) -> None:
    outcome = best_layout(problem)
    result = outcome.require()
    check_layout(problem, result.layout)
    assert result.arena_bytes == result.lower_bound_bytes == smallest
    assert result.certificate.is_optimal
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    refuted = best_layout(problem, capacity_bytes=smallest - 1)
    assert refuted.require().certificate is Certificate.REFUTED
    assert refuted.require().layout is None
    assert refuted.termination.reason is TerminationReason.INFEASIBLE
    assert refuted.require().lower_bound_bytes >= smallest
    fitted = best_layout(problem, capacity_bytes=smallest).require()
    check_layout(problem, fitted.layout, capacity_bytes=smallest)


@given(st.integers(0, 10**9))
def test_plain_problems_end_with_the_optimum(seed):
    check_plain(seed)


@given(st.integers(0, 10**9))
def test_rich_problems_end_with_the_optimum(seed):
    problem = random_rich(random.Random(seed), 5)
    check_answers(problem, smallest_arena_by_offsets(problem))


def check_large(seed: int) -> None:
    rng = random.Random(seed)
    alignment = rng.choice([1, 64])
    problem = random_plain(rng, 200, steps=rng.choice([10, 80]), size=3000, alignment=alignment)
    result = best_layout(problem, Limits(work=3000, seed=seed)).require()
    check_layout(problem, result.layout)
    assert arena_lower_bound(problem) <= result.lower_bound_bytes <= result.arena_bytes


@given(st.integers(0, 10**9))
@settings(max_examples=examples(60))
def test_larger_problems_have_legal_layouts(seed):
    check_large(seed)


@pytest.mark.slow
@given(st.integers(0, 10**12))
@settings(max_examples=10_000, deadline=None)
def test_ten_thousand_plain_problems_end_with_the_optimum(seed):
    check_plain(seed)


@pytest.mark.slow
@given(st.integers(0, 10**12))
@settings(max_examples=1_000, deadline=None)
def test_a_thousand_larger_problems_have_legal_layouts(seed):
    check_large(seed)


def test_nine_buffers_are_proved_by_refuting_8():
    problem = problem_of(*NINE)
    result = best_layout(problem).require()
    assert (result.arena_bytes, result.live_bytes, result.lower_bound_bytes) == (9, 8, 9)
    assert result.certificate is Certificate.EXHAUSTED
    assert best_layout(problem, capacity_bytes=8).require().certificate is Certificate.REFUTED


def test_parts_with_nobody_live_between_them_are_decided_one_by_one():
    later = tuple((start + 7, end + 7, size) for start, end, size in NINE)
    alone, both = (best_layout(problem_of(*rows)).require() for rows in (NINE, (*NINE, *later)))
    assert (both.arena_bytes, both.certificate) == (9, Certificate.EXHAUSTED)
    assert both.nodes <= 3 * alone.nodes
    rich = LayoutProblem(
        tuple(replace(b, alignment=1 + k % 2) for k, b in enumerate(problem_of(*NINE, *later).buffers))
    )
    assert best_layout(rich).require().certificate.is_optimal


@pytest.mark.parametrize("method", ["valley", "canonical"])
def test_a_named_search_proves_by_itself(method):
    result = best_layout(problem_of(*NINE), methods=[method]).require()
    assert result.certificate is Certificate.EXHAUSTED
    assert list(result.methods) == [method]
    assert result.methods[method].arena_bytes == 9
    assert result.methods[method].nodes == result.nodes


def test_no_rule_is_below_the_answer():
    for seed in range(2):
        problem = random_plain(random.Random(seed), 40, steps=20, size=100)
        best = best_layout(problem, Limits(work=20_000)).require().arena_bytes
        assert best <= min(rule(problem).arena_bytes for rule in RULES.values())


def test_work_used_up_is_not_a_proof():
    problem = problem_of(*NINE)
    outcome = best_layout(problem, Limits(work=30), capacity_bytes=8)
    assert outcome.require().certificate is Certificate.NOT_PROVED
    assert outcome.termination.reason is TerminationReason.NO_SOLUTION_FOUND
    assert outcome.termination.limit == "work"
    open_end = best_layout(problem, Limits(work=30)).require()
    assert open_end.certificate in {Certificate.BOUND, Certificate.EXHAUSTED}
    assert open_end.layout is not None


def test_time_that_runs_out_in_a_rule_keeps_what_there_was(monkeypatch):
    seconds = iter(range(10**6))
    monkeypatch.setattr("neaptide.outcome.Stopwatch.seconds", lambda _: float(next(seconds)))
    problem = random_plain(random.Random(5), 60, steps=25, size=100)
    outcome = best_layout(problem, Limits(time_s=30.0), methods=["size_first", "inductor"])
    result = outcome.require()
    assert result.methods["size_first"].arena_bytes == result.arena_bytes
    assert result.methods["inductor"].arena_bytes is None
    assert outcome.termination.limit == "time"


def test_very_dense_problems_with_fixed_buffers_are_not_searched():
    buffers = [Buffer(f"b{k}", k % 7, 400 + k, 1 + k % 9) for k in range(400)]
    problem = LayoutProblem((Buffer("fixed", 0, 1, 4, offset=2), *buffers))
    result = best_layout(problem, methods=["valley"]).require()
    check_layout(problem, result.layout)
    assert result.nodes == 0


def test_a_start_is_a_candidate_and_must_be_legal():
    problem = problem_of(*NINE)
    best = best_layout(problem).require().layout
    result = best_layout(problem, start=best, methods=["tvm_size"]).require()
    assert result.arena_bytes == 9
    with pytest.raises(VerifyError):
        best_layout(problem, start=Layout.of(problem, (0,) * len(problem)))


def test_sizes_near_the_limit():
    big = 1 << 60
    problem = problem_of((0, 2, big), (1, 3, big), (2, 4, big), (0, 4, 3), alignment=64)
    result = best_layout(problem).require()
    assert result.arena_bytes == 2 * big + 3
    assert result.certificate is Certificate.MEETS_BOUND


def test_a_fixed_buffer_above_the_capacity_is_refuted():
    problem = LayoutProblem((Buffer("a", 0, 1, 4, offset=8), Buffer("b", 0, 1, 4)))
    assert best_layout(problem, capacity_bytes=11).require().certificate is Certificate.REFUTED
    assert best_layout(problem, capacity_bytes=12).require().arena_bytes == 12


@pytest.mark.parametrize("stage", sorted(set(STAGES)))
def test_a_stage_left_out_does_not_run_and_the_layout_is_sound(stage):
    problem = random_rich(random.Random(5), 14)
    result = best_layout(problem, Limits(work=3000), without=(stage,)).require()
    check_layout(problem, result.layout)
    assert stage not in result.methods

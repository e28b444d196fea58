"""What `layout.best_layout` promises, of every method by name, those of others included, and of the default."""

from __future__ import annotations

import copy
import random
import threading

import pytest

from layout.layout_small import NINE, problem_of, random_plain, random_rich, smallest_arena_by_offsets
from neaptide.errors import UsageError
from neaptide.layout.best_layout import ALL, METHODS, best_layout
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Certificate
from neaptide.layout.validate import check_layout
from neaptide.named_peers import GRID, LAYOUTS, RULES
from neaptide.outcome import Limits, TerminationReason
from support.together import together

WITH_PROCESS = {"cp_sat"}
EACH = [None, *(name for name in METHODS if name not in WITH_PROCESS)]
QUICK = [str(name) for name in EACH if name not in {*LAYOUTS, *RULES, *GRID}]


def found_by(method, problem, limits=None, **options):
    return best_layout(problem, limits, methods=None if method is None else [method], **options)


@together("method", EACH, ids=str, quick=QUICK)
def test_layouts_are_legal_and_between_the_bound_and_the_sum_and_the_problem_stays_as_it_is(method):
    for seed in range(3):
        rng = random.Random(seed)
        problem = random_rich(rng, 8) if seed % 2 else random_plain(rng, 20, steps=9, size=40)
        before = copy.deepcopy(problem)
        result = found_by(method, problem, Limits(work=3000)).require()
        check_layout(problem, result.layout)
        assert arena_lower_bound(problem) <= result.lower_bound_bytes <= result.arena_bytes
        assert result.arena_bytes == result.layout.arena_bytes
        assert method is None or result.methods[method].arena_bytes is not None
        assert problem.buffers == before.buffers


@together("method", EACH, ids=str, quick=QUICK)
def test_proofs_agree_with_trying_everything(method):
    for seed in range(3):
        problem = random_rich(random.Random(seed), 4)
        smallest = smallest_arena_by_offsets(problem)
        outcome = found_by(method, problem)
        result = outcome.require()
        assert result.lower_bound_bytes <= smallest <= result.arena_bytes
        assert result.certificate.is_optimal == (result.arena_bytes == result.lower_bound_bytes)
        assert (outcome.termination.reason is TerminationReason.OPTIMAL) == result.certificate.is_optimal
        refused = found_by(method, problem, capacity_bytes=smallest - 1)
        assert refused.require().layout is None
        assert refused.require().certificate in {Certificate.REFUTED, Certificate.NOT_PROVED}


@together("method", EACH, ids=str, quick=QUICK)
def test_a_limit_of_work_gives_the_same_answer_again_and_an_interrupt_one_that_is_legal(method):
    problem = random_plain(random.Random(11), 25, steps=12, size=777)
    limits = Limits(work=500, seed=3)
    first, second = (found_by(method, problem, limits) for _ in range(2))
    assert (first.value, first.work, first.termination) == (second.value, second.work, second.termination)
    assert first.termination.limit in {None, "work"}
    stop = threading.Event()
    stop.set()
    outcome = found_by(method, problem, interrupt=stop)
    assert outcome.termination.is_proved or outcome.termination.reason is TerminationReason.INTERRUPTED
    check_layout(problem, outcome.require().layout)


@together("method", EACH, ids=str, quick=QUICK)
def test_no_buffers_need_no_arena(method):
    result = found_by(method, LayoutProblem(()), capacity_bytes=0).require()
    assert (result.arena_bytes, result.certificate) == (0, Certificate.MEETS_BOUND)


def test_names_are_one_each_and_others_are_refused():
    with pytest.raises(UsageError, match="no layout method 'best'"):
        best_layout(problem_of(*NINE), methods=["best"])
    with pytest.raises(UsageError, match="capacity"):
        best_layout(problem_of(*NINE), capacity_bytes=-1)
    assert ALL not in METHODS
    assert len(set(METHODS)) == len(METHODS)

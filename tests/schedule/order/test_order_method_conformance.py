"""What `schedule.order.portfolio.best_order` promises, of every method by name, those of others included, and of the default."""

from __future__ import annotations

import copy
import threading

import pytest

from neaptide.errors import UsageError
from neaptide.named_peers import LISTS, ORDERS, STRUCTURES
from neaptide.outcome import Limits, TerminationReason
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.portfolio import ALL, METHODS, best_order
from neaptide.schedule.order.problem import OrderProblem
from schedule.order.order_problems import brute_force, random_problem
from support.together import together

EACH = (None, *METHODS)
QUICK = [str(name) for name in EACH if name not in {*LISTS, *STRUCTURES, *ORDERS}]
PROVE = {"exact", "serenity_dp", "dominant"}
"""A small problem has the best order by any of them."""


def found_by(method, problem, limits=None, interrupt=None):
    return best_order(problem, limits, interrupt, methods=None if method is None else [method])


@together("method", EACH, ids=str, quick=QUICK)
def test_orders_are_legal_and_no_worse_than_the_list_and_the_problem_stays_as_it_is(method):
    for seed in (11, 12, 13):
        problem = random_problem(seed, 14, in_place=seed % 2 == 0, mutation=seed == 13)
        before = copy.deepcopy(problem)
        result = found_by(method, problem, Limits(work=5000)).require()
        assert problem.is_order(result.order)
        assert evaluate_order(problem, result.order).peak_bytes == result.peak_bytes
        assert result.order_lower_bound_bytes <= result.peak_bytes
        assert result.peak_bytes <= evaluate_order(problem, range(problem.op_count)).peak_bytes
        assert (problem.storages, problem.ops) == (before.storages, before.ops)
        if method is None:
            continue
        assert set(result.methods) == {"program_order", method}
        found = result.methods[method]
        if method in STRUCTURES and found.peak_bytes is None:
            named = [f"op {op.name} " for op in problem.ops] + [
                f"storage {s.name} " for s in problem.storages
            ]
            assert any(name in found.note for name in named) or "not proved" in found.note
            continue
        assert found.peak_bytes >= result.order_lower_bound_bytes
        if method in PROVE:
            assert found.peak_bytes == best_order(problem).require().peak_bytes


@together("method", EACH, ids=str, quick=QUICK)
def test_proofs_agree_with_trying_everything(method):
    for seed in range(6):
        problem = random_problem(seed, 1 + seed, in_place=seed % 2 == 0, mutation=seed % 3 == 0)
        result = found_by(method, problem).require()
        least = brute_force(problem)
        assert result.order_lower_bound_bytes <= least <= result.peak_bytes
        assert result.certificate.is_optimal == (result.peak_bytes == result.order_lower_bound_bytes)


@together("method", EACH, ids=str, quick=QUICK)
def test_a_limit_of_work_is_kept_and_the_answer_is_the_same_again(method):
    problem = random_problem(5, 30, reach=8)
    for work in (0, 40, 400):
        first, second = (found_by(method, problem, Limits(work=work, seed=3)) for _ in range(2))
        assert (first.value, first.work, first.termination) == (second.value, second.work, second.termination)
        assert first.require().states <= work
        assert first.termination.limit in {None, "work"}
        for name, found in first.require().methods.items():
            assert found.peak_bytes == second.require().methods[name].peak_bytes


@together("method", EACH, ids=str, quick=QUICK)
def test_an_interrupted_search_says_so_and_has_the_order_of_the_list(method):
    problem, stop = random_problem(3, 40, reach=12), threading.Event()
    stop.set()
    outcome = found_by(method, problem, interrupt=stop)
    assert outcome.require().order == tuple(range(40))
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    assert not outcome.require().certificate.is_optimal


@together("method", EACH, ids=str, quick=QUICK)
def test_a_problem_without_operations_has_an_order(method):
    assert found_by(method, OrderProblem((), ())).require().peak_bytes == 0


def test_names_are_one_each_and_others_are_refused():
    assert len(set(METHODS)) == len(METHODS)
    assert ALL not in METHODS
    with pytest.raises(UsageError, match="no ordering method 'best'"):
        best_order(random_problem(1, 3), methods=["best"])

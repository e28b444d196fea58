import random
import threading

import pytest

from neaptide.errors import MissingExtra, VerifyError
from neaptide.outcome import LimitGuard, Limits, TerminationReason
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.search.lattice import mask_of
from neaptide_peers.cp_sat import process
from neaptide_peers.cp_sat.solve import solve_all
from neaptide_peers.orders.cp_model import order_model
from neaptide_peers.orders.cp_windows import find_order, solve_window_with_cp
from neaptide_peers.orders.windows import window_problem
from schedule.order.order_problems import all_orders, brute_force, literal_bytes, random_problem

needs_ortools = pytest.mark.skipif(not process.is_installed(), reason="needs ortools")


def small_problem(seed, most=7):
    return random_problem(seed, 1 + seed % most, in_place=seed % 2 == 0, mutation=seed % 3 == 0)


def rivals():
    """Two results that may take the same operand's bytes, and a second operand that only one of them may take."""
    sizes = {"a": 5, "b": 7, "c": 6, "d": 7, "e": 4}
    storages = tuple(OrderStorage(name, size, output=name in "cd") for name, size in sizes.items())
    ops = (
        OrderOp("make", (), (0, 1), 2),
        OrderOp("look", (0,), (4,)),
        OrderOp("mix", (0, 1), (2, 3), 1, ((2, 0), (2, 1), (3, 1))),
    )
    return OrderProblem(storages, ops)


@needs_ortools
def test_the_model_of_all_orders_against_brute_force():
    problems = [*(small_problem(seed) for seed in range(250)), rivals()]
    models = [order_model(p, hint=range(p.op_count)) for p in problems]
    outcomes = solve_all([m.model for m in models])
    better = 0
    for problem, modelled, outcome in zip(problems, models, outcomes, strict=True):
        assert outcome.termination.reason is TerminationReason.OPTIMAL
        least = brute_force(problem)
        assert outcome.value.objective * modelled.unit_bytes == least
        assert max(literal_bytes(problem, modelled.order(outcome.value.values))) == least
        better += least < evaluate_order(problem, range(problem.op_count)).peak_bytes
    assert better > 20


@needs_ortools
def test_windows_against_brute_force():
    """The best of all orders that differ inside the window only, by its highest hill there."""
    rng = random.Random(3)
    windows, models = [], []
    for seed in range(60):
        problem = random_problem(seed, 12, in_place=seed % 2 == 0, mutation=seed % 3 == 0)
        start = rng.randint(0, 6)
        end = start + rng.randint(1, 6)
        ops = range(start, end)
        inner = window_problem(problem, mask_of(range(start)), ops)
        windows.append((problem, start, end, inner))
        models.append(order_model(inner, hint=range(len(ops))))
    for (problem, start, end, inner), modelled, outcome in zip(
        windows, models, solve_all([m.model for m in models]), strict=True
    ):
        hills = [
            max(
                literal_bytes(problem, (*range(start), *(start + k for k in order), *range(end, 12)))[
                    start:end
                ]
            )
            for order in all_orders(inner)
        ]
        assert outcome.value.objective * modelled.unit_bytes == min(hills)


@needs_ortools
def test_one_window_is_solved_and_proved():
    problem = next(
        p
        for p in (random_problem(seed, 7, in_place=True) for seed in range(100))
        if evaluate_order(p, range(7)).peak_bytes > brute_force(p)
    )
    outcome = solve_window_with_cp(problem, range(7), 0, 7)
    least = brute_force(problem)
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert outcome.termination.best == outcome.termination.bound == least
    assert evaluate_order(problem, outcome.value).peak_bytes == least
    assert (
        evaluate_order(problem, find_order(problem, range(7), guard=LimitGuard(Limits())).order).peak_bytes
        == least
    )


@needs_ortools
def test_improving_is_the_same_every_time_and_never_worse():
    problem = random_problem(11, 60, in_place=True, reach=12, largest=100)
    before = evaluate_order(problem, range(60)).peak_bytes
    found = [find_order(problem, range(60), guard=LimitGuard(Limits(work=4000))) for _ in range(2)]
    assert found[0] == found[1]
    assert evaluate_order(problem, found[0].order).peak_bytes < before
    stopped = find_order(problem, range(60), guard=LimitGuard(Limits()), lower_bytes=before)
    assert stopped.order == tuple(range(60))


def open_window():
    """A problem whose list order no cut proves, so that the solver is needed."""
    return random_problem(4, 40, reach=20, largest=100)


def test_an_interrupt_gives_back_the_order():
    interrupt = threading.Event()
    interrupt.set()
    outcome = solve_window_with_cp(open_window(), range(40), 0, 40, Limits(), interrupt)
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    assert outcome.value == tuple(range(40))
    assert outcome.termination.bound < outcome.termination.best


@needs_ortools
def test_a_limit_gives_a_bound():
    problem = open_window()
    ended = solve_window_with_cp(problem, range(40), 0, 40, Limits(work=1500)).termination
    assert (ended.reason, ended.limit) == (TerminationReason.FEASIBLE, "work")
    assert ended.bound < ended.best <= evaluate_order(problem, range(40)).peak_bytes


def test_windows_that_need_no_solver(monkeypatch):
    monkeypatch.setattr(process, "is_installed", lambda: False)
    problem = small_problem(6)
    outcome = solve_window_with_cp(problem, range(problem.op_count), 2, 2)
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert outcome.value == tuple(range(problem.op_count))
    with pytest.raises(MissingExtra):
        solve_window_with_cp(open_window(), range(40), 0, 40)
    with pytest.raises(VerifyError):
        solve_window_with_cp(problem, range(problem.op_count - 1), 0, 1)


def test_the_portfolio_runs_it_by_name():
    problem = random_problem(11, 12)
    result = best_order(problem, methods=["cp_windows"]).require()
    assert "cp_windows" in result.methods
    assert result.peak_bytes == evaluate_order(problem, result.order).peak_bytes
    assert result.peak_bytes <= evaluate_order(problem, range(problem.op_count)).peak_bytes
    assert "cp_windows" not in best_order(problem, methods=["all"]).require().methods

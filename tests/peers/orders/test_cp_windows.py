import pytest

from neaptide.errors import MissingExtra, VerifyError
from neaptide.outcome import Limits, TerminationReason
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.portfolio import best_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide_peers.cp_sat import process
from neaptide_peers.cp_sat.solve import solve_all
from neaptide_peers.orders.cp_model import order_model
from neaptide_peers.orders.cp_windows import solve_window_with_cp
from schedule.order.order_problems import brute_force, literal_bytes, random_problem

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


def open_window():
    """A problem whose list order no cut proves, so that the solver is needed."""
    return random_problem(4, 40, reach=20, largest=100)


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

import threading

from hypothesis import given
from hypothesis import strategies as st

from layout_play import from_rows, random_problem
from neaptide.corpus.layouts import nested, staggered
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.heuristics.greedy import PORTFOLIO, greedy_layout
from neaptide.layout.heuristics.rules import GRID
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Certificate
from neaptide.layout.validate import check_layout
from neaptide.outcome import Limits, TerminationReason
from neaptide.peers.layouts.rules import ALL_RULES as RULES


@given(st.integers(0, 10**9))
def test_the_portfolio_is_no_worse_than_any_rule_of_the_grid(seed):
    problem = random_problem(seed, 40)
    outcome = greedy_layout(problem, restarts=2)
    result = outcome.require()
    check_layout(problem, result.layout)
    assert result.arena_bytes == outcome.termination.best
    for name in (*GRID, "first_fit", "ort", "xla"):
        assert result.arena_bytes <= RULES[name](problem).arena_bytes, name
    assert result.certificate.is_optimal == (result.arena_bytes == arena_lower_bound(problem))
    assert greedy_layout(problem, restarts=2).require() == result


def test_every_rule_runs_once_when_the_bound_is_out_of_reach():
    problem = from_rows(staggered(60, 2))
    result = greedy_layout(problem, restarts=8).require()
    assert result.certificate is Certificate.BOUND
    assert list(result.methods) == [*(f"{order}_{fit}" for order, fit in PORTFOLIO), "restarts"]
    assert len(PORTFOLIO) == len(set(PORTFOLIO)) == 26
    assert result.methods["restarts"].nodes == 8
    for name in GRID:
        assert result.methods[name].arena_bytes == RULES[name](problem).arena_bytes


def test_restarts_improve_hard_problems():
    problem = from_rows(staggered(60, 2))
    without = greedy_layout(problem, restarts=0).require()
    assert greedy_layout(problem).require().arena_bytes < without.arena_bytes


def test_the_portfolio_stops_at_the_bound():
    outcome = greedy_layout(from_rows(nested(200, 1)))
    result = outcome.require()
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert result.certificate is Certificate.MEETS_BOUND
    assert len(result.methods) < len(PORTFOLIO)


def test_a_target_is_enough():
    problem = from_rows(staggered(60, 2))
    assert list(greedy_layout(problem, target_bytes=1 << 40).require().methods) == ["size_first"]


def test_limits_leave_at_least_one_layout():
    problem = from_rows(staggered(60, 2))
    outcome = greedy_layout(problem, Limits(work=1))
    assert outcome.termination.limit == "work"
    assert list(outcome.require().methods) == ["size_first"]
    two = greedy_layout(problem, Limits(work=2 * len(problem)))
    assert len(two.require().methods) == 2
    stop = threading.Event()
    stop.set()
    assert greedy_layout(problem, interrupt=stop).termination.reason is TerminationReason.INTERRUPTED


def test_no_buffers_are_optimal_at_once():
    result = greedy_layout(LayoutProblem(())).require()
    assert result.arena_bytes == 0
    assert result.certificate is Certificate.MEETS_BOUND

import threading
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.corpus.series_parallel import pumpkin
from neaptide.errors import UsageError
from neaptide.outcome import LimitGuard, Limits, TerminationReason
from neaptide.schedule.order import portfolio
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.neutral import from_mapping
from neaptide.schedule.order.portfolio import METHODS, best_order, table_rows
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions import reduce
from neaptide.schedule.order.result import Certificate
from schedule.order.order_problems import brute_force, random_problem

small = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(0, 7), in_place=st.booleans(), mutation=st.booleans()
)


@given(small)
@settings(max_examples=150, deadline=None)
def test_small_problems_are_proved(problem):
    outcome = best_order(problem)
    result = outcome.require()
    assert outcome.termination.reason is TerminationReason.OPTIMAL
    assert result.certificate.is_optimal
    assert (
        result.peak_bytes
        == result.order_lower_bound_bytes
        == evaluate_order(problem, result.order).peak_bytes
    )
    if problem.op_count:
        assert result.peak_bytes == brute_force(problem)
    assert result.gap == 0


@given(st.integers(0, 10**6), st.integers(10, 40), st.integers(0, 400))
@settings(max_examples=25, deadline=None)
def test_work_limit_gives_the_same_answer_again_never_worse_than_the_list(seed, n, work):
    problem = random_problem(seed, n, reach=8)
    first = best_order(problem, Limits(work=work)).require()
    second = best_order(problem, Limits(work=work)).require()
    assert first == second
    assert first.states <= work
    assert first.order_lower_bound_bytes <= first.peak_bytes
    assert first.peak_bytes <= evaluate_order(problem, range(n)).peak_bytes
    assert evaluate_order(problem, first.order).peak_bytes == first.peak_bytes
    assert [m.peak_bytes for m in first.methods.values()] == [m.peak_bytes for m in second.methods.values()]


@pytest.mark.parametrize("name", METHODS)
def test_each_method_alone(name):
    problem = random_problem(11, 14)
    result = best_order(problem, Limits(work=5000), methods=[name]).require()
    assert set(result.methods) == {"program_order", name}
    assert result.methods[name].peak_bytes is not None
    assert result.methods[name].peak_bytes >= result.order_lower_bound_bytes
    assert table_rows(result.methods)[0][1] == min(m.peak_bytes for m in result.methods.values())
    if name in {"exact", "serenity_dp"}:
        assert result.methods[name].peak_bytes == best_order(problem).require().peak_bytes


def test_interrupt_keeps_the_list_order():
    stop = threading.Event()
    stop.set()
    problem = random_problem(3, 40, reach=12)
    outcome = best_order(problem, interrupt=stop)
    assert outcome.require().order == tuple(range(40))
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    assert outcome.require().certificate is Certificate.BOUND


def test_unknown_method_and_empty_problem():
    with pytest.raises(UsageError, match="no ordering method 'best'"):
        best_order(random_problem(1, 3), methods=["best"])
    assert best_order(OrderProblem((), ())).require().peak_bytes == 0


def test_regions_given_up_on_are_reduced_with_a_higher_limit(monkeypatch):
    """What the second reduction leaves stands for orders of the problem itself, and proves the same peak."""
    problem = from_mapping(pumpkin(6, 120, 0))
    monkeypatch.setattr(portfolio, "reduce", partial(reduce, region_states=20))
    run = portfolio._Portfolio(problem, LimitGuard(Limits()), None, None)
    run._reduce()
    assert run.reduced is not None
    assert run.reduced.stats.skipped
    monkeypatch.setattr(portfolio, "reduce", reduce)
    run._reduce_again(200_000)
    assert run.reduced.is_solved
    assert run.exhausted
    assert problem.is_order(run.order)
    assert run.peak == best_order(problem).require().peak_bytes

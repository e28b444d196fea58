import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.heuristics import DownsetState, lpmf
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.search.downsets import beam_order
from neaptide.schedule.order.search.lattice import Lattice
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.orders.lists import ALL_LISTS, xla_list
from schedule.order.order_problems import brute_force, random_problem

problems = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(0, 30), in_place=st.booleans(), mutation=st.booleans()
)


@pytest.mark.parametrize("name", ALL_LISTS)
@given(problem=problems)
@settings(max_examples=40, deadline=None)
def test_lists_give_legal_orders_again_and_again_the_same(name, problem):
    order = ALL_LISTS[name](problem)
    assert problem.is_order(order)
    assert order == ALL_LISTS[name](problem)


@given(problems)
@settings(max_examples=80, deadline=None)
def test_lpmf_equals_its_rule_by_exhaustive_choice(problem):
    steps = to_steps(problem)
    state = DownsetState(steps)
    peak = state.bytes
    while state.ready:

        def need(op):
            return state.bytes + steps.rise[op]

        op = min(state.ready, key=lambda op: (max(need(op), peak), state.growth(op), op))
        peak = max(peak, need(op))
        state.run(op)
    assert lpmf(steps) == state.order()


def test_xla_list_ignores_what_an_op_needs_while_it_runs():
    """After Sethi and Ullman: the greedy start with what grows least is not the one with the lowest peak."""
    storages = tuple(OrderStorage(name, size) for name, size in (("a", 1), ("b", 10), ("c", 2), ("d", 1)))
    ops = (
        OrderOp("a", (), (0,)),
        OrderOp("b", (), (1,)),
        OrderOp("c", (1,), (2,)),
        OrderOp("d", (0, 2), (3,)),
    )
    problem = OrderProblem(storages, ops)
    assert evaluate_order(problem, xla_list(problem)).peak_bytes == 13
    assert brute_force(problem) == 12


@given(
    st.builds(random_problem, st.integers(0, 10**6), st.integers(1, 7), in_place=st.booleans()), st.booleans()
)
@settings(max_examples=examples(120), deadline=None)
def test_wide_beam_is_exact_and_a_narrow_one_never_below(problem, reverse):
    best = brute_force(problem)
    lattice = Lattice(to_steps(problem), reverse=reverse)
    for width in (1, 10**6):
        order = beam_order(lattice, width, level=0, upper_bytes=10**9, guard=LimitGuard(Limits()))
        assert order is not None
        peak = evaluate_order(problem, order).peak_bytes
        assert peak >= best
        if width > 1:
            assert peak == best
    assert beam_order(lattice, 8, level=best, upper_bytes=best, guard=LimitGuard(Limits())) is None

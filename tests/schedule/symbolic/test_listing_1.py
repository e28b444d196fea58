"""Listing 1 of BladeDISC++ with its slips corrected: elements are four bytes, and S0 = 12*S1.

The paper prints 132096*S0 for 11008*S1 under that relation. It is 11008*S1, which is less than 1024*S0 = 12288*S1.
"""

import pytest

from neaptide.schedule.symbolic.lists import SymbolicState, list_order
from neaptide.schedule.symbolic.problem import symbolic_problem
from neaptide.symbolic.size_expr import SizeExpr
from schedule.symbolic.symbolic_graphs import listing_1

S0, S1 = map(SizeExpr.dim, ("S0", "S1"))
BROADCAST, RESHAPE, DOT = range(3)


def test_the_sizes_that_the_paper_compares():
    store = symbolic_problem(listing_1(copies=True)).store
    expr1, expr2 = (store.expression(store.known(size)) for size in (11008 * S1, 1024 * S0))
    assert (str(expr1), str(expr2)) == ("11008*S1", "12288*S1")
    assert store.compare(11008 * S1, 1024 * S0) == "<"


@pytest.mark.parametrize(("copies", "dot"), [(True, 10996), (False, 11008)])
def test_allocated_minus_freed_of_the_two_ready_operations(copies, dot):
    problem = symbolic_problem(listing_1(copies=copies))
    state = SymbolicState(problem)
    state.run(RESHAPE)
    assert {BROADCAST, DOT} <= state.ready.keys()
    impacts = {op: state.allocated_minus_freed(op) for op in (DOT, BROADCAST)}
    assert problem.store.expression(impacts[DOT]) == 4 * dot * S1
    assert problem.store.expression(impacts[BROADCAST]) == 4 * 49152 * S1
    assert problem.store.expression(problem.store.known(4 * 4096 * S0)) == 4 * 49152 * S1
    assert problem.store.compare_known(impacts[DOT], impacts[BROADCAST]) == "<"


@pytest.mark.parametrize("copies", [True, False])
def test_the_dot_goes_before_the_broadcast(copies):
    order = list_order(symbolic_problem(listing_1(copies=copies)))
    assert order.index(DOT) < order.index(BROADCAST)


def test_without_the_relation_the_two_impacts_have_no_order():
    problem = symbolic_problem(listing_1(copies=True, related=False))
    state = SymbolicState(problem)
    state.run(RESHAPE)
    assert problem.store.compare_known(*map(state.allocated_minus_freed, (DOT, BROADCAST))) is None

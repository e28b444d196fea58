import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide_peers.incremental.carried import carried_bound
from schedule.order.order_problems import brute_force, random_problem


def with_reader(problem, rng):
    """An op more that reads a few storages and makes an output."""
    size = len(problem.storages)
    reads = tuple(rng.sample(range(size), min(2, size)))
    storages = (*problem.storages, OrderStorage("copy", rng.randint(1, 9), output=True))
    return OrderProblem(storages, (*problem.ops, OrderOp("copy", reads, (size,))))


def with_fewer_reads(problem, rng):
    """An op that no longer reads one of its operands."""
    ops = list(problem.ops)
    op = rng.randrange(len(ops))
    if ops[op].reads:
        gone = rng.choice(ops[op].reads)
        pairs = tuple(pair for pair in ops[op].in_place if pair[1] != gone)
        ops[op] = replace(ops[op], reads=tuple(s for s in ops[op].reads if s != gone), in_place=pairs)
    return OrderProblem(problem.storages, tuple(ops))


@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_carried_bound_holds(seed, n, in_place, adds):
    problem = random_problem(seed, n, in_place=in_place)
    edit = with_reader if adds else with_fewer_reads
    edited = edit(problem, random.Random(seed))
    bound = carried_bound(problem, brute_force(problem), edited, range(n))
    assert bound <= brute_force(edited)


def test_an_edit_that_only_adds_keeps_the_bound():
    storages = (OrderStorage("a", 8), OrderStorage("b", 4, output=True))
    old = OrderProblem(storages, (OrderOp("f", (), (0,)), OrderOp("g", (0,), (1,))))
    edited = with_reader(old, random.Random(0))
    assert carried_bound(old, 12, edited, (0, 1)) == 12


def test_a_lost_access_costs_its_bytes_and_a_lost_dependency_everything():
    storages = (OrderStorage("a", 8), OrderStorage("b", 4), OrderStorage("c", 4, output=True))
    f, g = OrderOp("f", (), (0,)), OrderOp("g", (0,), (1,))
    old = OrderProblem(storages, (f, g, OrderOp("h", (0, 1), (2,))))
    still_after = OrderProblem(storages, (f, g, OrderOp("h", (1,), (2,))))
    assert carried_bound(old, 16, still_after, (0, 1, 2)) == 8
    free = OrderProblem(storages, (f, g, OrderOp("h", (0,), (2,))))
    assert carried_bound(old, 16, free, (0, 1, 2)) == 0


def test_a_smaller_storage_carries_nothing():
    old = OrderProblem((OrderStorage("a", 8),), (OrderOp("f", (), (0,)),))
    edited = OrderProblem((OrderStorage("a", 7),), (OrderOp("f", (), (0,)),))
    assert carried_bound(old, 8, edited, (0,)) == 0

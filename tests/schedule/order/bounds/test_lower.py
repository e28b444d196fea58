from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.bounds.cuts import lowest_state, state_bytes
from neaptide.schedule.order.bounds.lower import cut_bound, op_bounds, per_op_bound, rest_bytes
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.search.bitset_lattice import Lattice, closures, mask_of
from neaptide.schedule.order.steps import to_steps
from schedule.order.order_problems import brute_force, random_problem
from schedule.order.search.test_downsets import downset_bytes, minpeak

problems = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(1, 7), in_place=st.booleans(), mutation=st.booleans()
)


@given(problems)
@settings(max_examples=examples(150), deadline=None)
def test_bounds_are_ordered_and_below_the_optimum(problem):
    order = range(problem.op_count)
    cut = cut_bound(problem, order)
    assert cut.complete
    assert per_op_bound(problem) <= cut.nbytes <= brute_force(problem)
    bytes_at = evaluate_order(problem, order).bytes_at
    assert all(bound <= bytes_at[op] for op, bound in enumerate(op_bounds(problem)))
    assert rest_bytes(problem) == (
        Lattice(problem).start_bytes,
        Lattice(problem, reverse=True).start_bytes,
    )


@given(problems)
@settings(max_examples=examples(100), deadline=None)
def test_lazy_bound_equals_the_largest_over_all_ops(problem):
    """The cut of every op, from a list of all downsets."""
    full = (1 << problem.op_count) - 1
    before, after = closures(problem)
    lattice = Lattice(problem)
    best = per_op_bound(problem)
    found = downset_bytes(problem)
    steps = to_steps(problem)
    for op in range(problem.op_count):
        legal = [
            (left, nbytes)
            for left, nbytes in found.items()
            if not before[op] & left and (after[op] | 1 << op) & left == after[op] | 1 << op
        ]
        chosen = lowest_state(steps, include=problem.predecessors[op], exclude=(op,))
        lowest = state_bytes(steps, chosen)
        assert lowest == min(nbytes for _, nbytes in legal) == found[full & ~mask_of(sorted(chosen))]
        pairs_free = not lattice.takeovers[op] and not problem.ops[op].in_place
        if pairs_free:
            best = max(best, lowest + lattice.alloc[op] + problem.ops[op].workspace)
    if not any(op.in_place for op in problem.ops):
        assert cut_bound(problem, range(problem.op_count)).nbytes == best


@given(problems, st.integers(0, 60))
@settings(max_examples=examples(120), deadline=None)
def test_cuts_for_a_proof_find_it_where_all_cuts_do(problem, more):
    order = range(problem.op_count)
    full = cut_bound(problem, order)
    upper = evaluate_order(problem, order).peak_bytes - more
    proof = cut_bound(problem, order, upper_bytes=upper, only_proof=True)
    assert proof.cuts <= full.cuts
    assert proof.nbytes <= full.nbytes
    assert (proof.nbytes >= upper) == (full.nbytes >= upper)


@given(problems)
@settings(max_examples=examples(120), deadline=None)
def test_lowest_downset_of_all(problem):
    steps = to_steps(problem)
    chosen = lowest_state(steps)
    found = downset_bytes(problem)
    left = ((1 << problem.op_count) - 1) & ~mask_of(sorted(chosen))
    assert state_bytes(steps, chosen) == min(found.values()) == found[left]


def test_sizes_beyond_32_bits():
    big = 2**40
    storages = (OrderStorage("a", big + 1), OrderStorage("b", 3 * big), OrderStorage("c", big, output=True))
    problem = OrderProblem(
        storages, (OrderOp("f", (), (0,)), OrderOp("g", (), (1,)), OrderOp("h", (0, 1), (2,)))
    )
    assert cut_bound(problem, range(3)).nbytes == 5 * big + 1
    free = OrderProblem(storages, (OrderOp("f", (), (0,)), OrderOp("g", (), (1,)), OrderOp("h", (1,), (2,))))
    steps = to_steps(free)
    lowest = lowest_state(steps, include=(1,), exclude=(2,), largest=False)
    assert lowest == {1}
    assert state_bytes(steps, lowest) == 3 * big


def test_limit_leaves_a_valid_bound():
    problem = random_problem(5, 14)
    cut = cut_bound(problem, range(14), guard=LimitGuard(Limits(work=0)))
    assert cut.nbytes == per_op_bound(problem)
    assert cut.cuts == 0


def lowest_peaks(problem, reverse):
    """For each set of placed ops the lowest peak of what comes after it in that direction, by brute force."""
    memo = {}
    lattice = Lattice(problem, reverse=reverse)
    minpeak(lattice, lattice.left, lattice.start_bytes, lattice.ready, memo)
    return memo


@given(problems)
@settings(max_examples=examples(120), deadline=None)
def test_lowest_downsets_around_an_op_can_be_passed_through(problem):
    """Exchange lemmas: to a superset-minimal downset, and on from a subset-minimal one, without a higher peak.

    The first is an intersection argument, and holds where no takeover depends on the order.
    """
    full = (1 << problem.op_count) - 1
    onwards = lowest_peaks(problem, reverse=False)
    back = lowest_peaks(problem, reverse=True)
    best = onwards[full]
    depends = any(Lattice(problem).takeovers)
    steps = to_steps(problem)
    for op in range(problem.op_count):
        holding = mask_of(sorted(lowest_state(steps, include=(op,), largest=False)))
        without = mask_of(sorted(lowest_state(steps, exclude=(op,), largest=False)))
        assert onwards[full & ~without] <= best
        if not depends:
            assert back[holding] <= best
            certified = max(back[holding], onwards[full & ~holding])
            assert certified >= best
            if onwards[full & ~holding] <= best:
                assert certified == best

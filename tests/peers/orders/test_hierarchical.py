import random

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.orders.block_tree import blocks, cut_to_size, post_dominators
from neaptide_peers.orders.hierarchical import hierarchical_order
from neaptide_peers.orders.macros import expand, macro_problem
from schedule.order.order_problems import brute_force, random_problem

problems = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(1, 25), in_place=st.booleans(), mutation=st.booleans()
)
small = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(1, 7), in_place=st.booleans(), mutation=st.booleans()
)


def passes_through(problem, op, gate):
    """Whether every way from an op to the end passes through `gate`, by following all others."""
    waiting, seen = [op], set()
    while waiting:
        spot = waiting.pop()
        if spot == gate:
            continue
        if not problem.successors[spot]:
            return False
        waiting += [s for s in problem.successors[spot] if s not in seen]
        seen.update(problem.successors[spot])
    return True


@given(problems)
@settings(max_examples=60, deadline=None)
def test_post_dominators_and_blocks(problem):
    nearest = post_dominators(problem)
    for op, gate in enumerate(nearest):
        gates = [g for g in range(problem.op_count) if g != op and passes_through(problem, op, g)]
        assert gate == min(gates, default=-1)
    members = [op for block in blocks(problem) for op in block.members()]
    assert sorted(members) == list(range(problem.op_count))
    for most in (1, 3, 100):
        parts = cut_to_size(blocks(problem), most)
        assert sorted(op for part in parts for op in part.members()) == list(range(problem.op_count))
        assert all(part.size == len(part.members()) <= most for part in parts)


@given(problems, st.integers(1, 8), st.integers(0, 99))
@settings(max_examples=examples(120), deadline=None)
def test_coarse_peaks_are_never_below_what_they_stand_for(problem, most, seed):
    groups = [part.members() for part in cut_to_size(blocks(problem), most)]
    coarse = macro_problem(problem, groups)
    rng = random.Random(seed)
    state = DownsetState(to_steps(coarse))
    while state.ready:
        state.run(rng.choice(list(state.ready)))
    order = expand(groups, state.order())
    real = evaluate_order(problem, order).peak_bytes
    assert evaluate_order(coarse, state.order()).peak_bytes >= real
    if most == 1:
        assert evaluate_order(coarse, state.order()).peak_bytes == real


@given(small)
@settings(max_examples=80, deadline=None)
def test_optimum_of_small_problems_once_all_is_taken_apart(problem):
    result = hierarchical_order(problem, guard=LimitGuard(Limits()), largest_block=3)
    assert evaluate_order(problem, result.order).peak_bytes == brute_force(problem)


@given(st.integers(0, 10**6), st.integers(20, 60))
@settings(max_examples=15, deadline=None)
def test_peaks_of_rounds_never_rise(seed, n):
    problem = random_problem(seed, n)
    result = hierarchical_order(problem, guard=LimitGuard(Limits()), states=50)
    peaks = [entry.peak_bytes for entry in result.rounds]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] == evaluate_order(problem, result.order).peak_bytes
    assert peaks[0] <= evaluate_order(problem, range(n)).peak_bytes

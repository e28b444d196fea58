from hypothesis import given
from hypothesis import strategies as st

from layout_play import random_problem
from neaptide.layout.bounds import arena_lower_bound, bytes_live_at, live_bytes
from neaptide.layout.problem import Buffer, LayoutProblem


@given(st.integers(0, 10**6))
def test_live_bytes_are_those_of_a_count_step_by_step(seed):
    problem = random_problem(seed, 6, steps=12, fixed=False)
    counted = [
        sum(p.high - p.low for b in problem.buffers for p in b.parts() if p.start <= step < p.end)
        for step in range(12)
    ]
    assert live_bytes(problem) == max(counted)
    points, total = bytes_live_at(problem)
    steps = dict(zip(points.tolist(), total.tolist(), strict=True))
    now = 0
    for step, expected in enumerate(counted):
        now = steps.get(step, now)
        assert now == expected


def stacked(problem, indices):
    """Bytes that buffers need in the order given, one on the other, each aligned."""
    top = 0
    for index in indices:
        buffer = problem.buffers[index]
        top = -(-top // buffer.alignment) * buffer.alignment + buffer.nbytes
    return top


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4, 8]))
def test_at_every_step_some_stack_reaches_the_padded_bound_and_none_is_below(seed, alignment):
    problem = random_problem(seed, 6, steps=12, alignments=(alignment,), fixed=False, gaps=False)
    best = 0
    for step in range(12):
        alive = [k for k, b in enumerate(problem.buffers) if b.start <= step < b.end]
        # The one with the largest padding on top is the best stack of one alignment.
        alive.sort(key=lambda k: -problem.buffers[k].nbytes % alignment)
        best = max(best, stacked(problem, alive))
    assert arena_lower_bound(problem) == best


def test_a_fixed_buffer_lifts_the_bound():
    problem = LayoutProblem((Buffer("a", 0, 1, 3), Buffer("b", 5, 6, 2, offset=40)))
    assert live_bytes(problem) == 3
    assert arena_lower_bound(problem) == 42


def test_nothing_needs_nothing():
    problem = LayoutProblem(())
    assert live_bytes(problem) == 0
    assert arena_lower_bound(problem) == 0

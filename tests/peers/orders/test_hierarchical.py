from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide_peers.orders.hierarchical import hierarchical_order
from schedule.order.order_problems import brute_force, random_problem

small = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(1, 7), in_place=st.booleans(), mutation=st.booleans()
)


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

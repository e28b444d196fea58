from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.bounds.lower import sub_problem_bound
from neaptide.schedule.order.evaluate import DownsetState, evaluate_order
from neaptide.schedule.order.search.bitset_lattice import Lattice, mask_of
from neaptide.schedule.order.search.improve import bytes_between, improve_peak, window_at
from neaptide.schedule.order.search.windows import window_problem
from neaptide.schedule.order.settings import OrderSettings
from schedule.order.order_problems import brute_force, random_problem

problems = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(1, 14), in_place=st.booleans(), mutation=st.booleans()
)
small = st.builds(
    random_problem, st.integers(0, 10**6), st.integers(1, 7), in_place=st.booleans(), mutation=st.booleans()
)


@given(problems, st.data())
@settings(max_examples=examples(150), deadline=None)
def test_hills_of_a_window_are_those_of_the_whole(problem, data):
    state = DownsetState(problem)
    between = [state.bytes]
    while state.ready:
        state.run(data.draw(st.sampled_from(sorted(state.ready))))
        between.append(state.bytes)
    order = state.order()
    assert bytes_between(problem, order) == between
    start = data.draw(st.integers(0, len(order)))
    end = data.draw(st.integers(start, len(order)))
    inner = window_problem(problem, mask_of(order[:start]), order[start:end])
    whole = evaluate_order(problem, order).bytes_at
    assert evaluate_order(inner, range(end - start)).bytes_at == whole[start:end]
    assert Lattice(inner).start_bytes == between[start]
    assert Lattice(inner, reverse=True).start_bytes == between[end]
    relaxed = window_problem(problem, mask_of(order[:start]), order[start:end], relaxed=True)
    low = evaluate_order(relaxed, range(end - start)).bytes_at
    assert all(a <= b for a, b in zip(low, whole[start:end], strict=True))


@given(small)
@settings(max_examples=examples(150), deadline=None)
def test_sub_problem_bound_is_below_the_optimum(problem):
    bound = sub_problem_bound(problem, range(problem.op_count), floor=0, guard=LimitGuard(Limits()))
    assert bound <= brute_force(problem)


@given(small)
@settings(max_examples=examples(120), deadline=None)
def test_windows_solve_small_problems(problem):
    better = improve_peak(problem, range(problem.op_count), guard=LimitGuard(Limits()))
    assert evaluate_order(problem, better).peak_bytes == brute_force(problem)


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_improving_never_raises_a_peak(seed, in_place):
    problem = random_problem(seed, 60, in_place=in_place)
    before = evaluate_order(problem, range(60)).peak_bytes
    better = improve_peak(
        problem, range(60), guard=LimitGuard(Limits()), settings=OrderSettings(window_states=100)
    )
    assert evaluate_order(problem, better).peak_bytes <= before
    start, end = window_at(problem, better, 30, 16)
    assert 0 <= start <= 30 < end <= 60


@given(problems, st.data())
@settings(max_examples=examples(120), deadline=None)
def test_a_window_of_a_window_has_the_hills_of_the_whole(problem, data):
    count = problem.op_count
    cuts = sorted(data.draw(st.lists(st.integers(0, count), min_size=4, max_size=4)))
    outer = window_problem(problem, mask_of(range(cuts[0])), range(cuts[0], cuts[3]))
    inner = window_problem(
        outer, mask_of(range(cuts[1] - cuts[0])), range(cuts[1] - cuts[0], cuts[2] - cuts[0])
    )
    whole = evaluate_order(problem, range(count)).bytes_at
    assert evaluate_order(inner, range(inner.op_count)).bytes_at == whole[cuts[1] : cuts[2]]

from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.search.downsets import DownsetSearch, SearchEnd
from neaptide.schedule.order.search.improve import improve_peak, window_at
from neaptide.schedule.order.search.lattice import Lattice, SearchState, close
from neaptide.schedule.order.steps import profile, to_steps
from schedule.order.order_problems import brute_force, random_problem
from support.drawn import examples

problems = st.builds(
    random_problem,
    st.integers(0, 10**6),
    st.integers(1, 7),
    in_place=st.booleans(),
    mutation=st.booleans(),
    reach=st.integers(2, 6),
)


def minpeak(lattice, left, nbytes, ready, memo):
    """Lowest peak of all completions of a state."""
    if left not in memo:
        best = None
        for op in ready:
            hill, following = lattice.move(left, nbytes, op)
            then = left & ~(1 << op)
            rest = tuple(x for x in ready if x != op) + tuple(lattice.enabled(then, op))
            peak = max(hill, minpeak(lattice, then, following, rest, memo))
            best = peak if best is None else min(best, peak)
        memo[left] = 0 if best is None else best
    return memo[left]


@given(problems, st.booleans(), st.booleans(), st.integers(0, 60))
@settings(max_examples=examples(400), deadline=None)
def test_free_moves_lose_no_completion(problem, reverse, runs, above):
    lattice = Lattice(to_steps(problem), reverse=reverse)
    memo = {}
    minpeak(lattice, lattice.left, lattice.start_bytes, lattice.ready, memo)
    waiting = [(lattice.left, lattice.start_bytes, lattice.ready)]
    for _ in range(30):
        if not waiting:
            break
        left, nbytes, ready = waiting.pop()
        level = nbytes + above
        place = SearchState(left, nbytes, ready, [])
        moves = close(lattice, place, level, runs=runs)
        assert max(level, memo[left]) == max(
            level, minpeak(lattice, place.left, place.nbytes, place.ready, memo)
        )
        for _, following, op in moves:
            then = place.left & ~(1 << op)
            rest = tuple(x for x in place.ready if x != op) + tuple(lattice.enabled(then, op))
            waiting.append((then, following, rest))


@given(problems, st.booleans())
@settings(max_examples=examples(250), deadline=None)
def test_search_finds_the_optimum_in_both_directions(problem, reverse):
    best = brute_force(problem)
    lattice = Lattice(to_steps(problem), reverse=reverse)
    search = DownsetSearch(lattice, lower_bytes=0, upper_bytes=best + 1)
    assert search.advance(LimitGuard(Limits())) is SearchEnd.FOUND
    assert evaluate_order(problem, search.order).peak_bytes == best == search.lower_bytes
    none = DownsetSearch(lattice, lower_bytes=0, upper_bytes=best)
    assert none.advance(LimitGuard(Limits())) is SearchEnd.NONE_BELOW
    assert none.lower_bytes == best


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_search_in_small_steps_gives_the_same_order_and_valid_bounds(seed, reverse):
    problem = random_problem(seed, 12)
    whole = DownsetSearch(Lattice(to_steps(problem), reverse=reverse), lower_bytes=0, upper_bytes=10**9)
    whole.advance(LimitGuard(Limits()))
    steps = DownsetSearch(Lattice(to_steps(problem), reverse=reverse), lower_bytes=0, upper_bytes=10**9)
    while steps.advance(LimitGuard(Limits(work=3)), 2) is SearchEnd.OPEN:
        assert steps.lower_bytes <= whole.lower_bytes
    assert (steps.order, steps.lower_bytes) == (whole.order, whole.lower_bytes)


@given(problems)
@settings(max_examples=examples(120), deadline=None)
def test_windows_solve_small_problems(problem):
    better = improve_peak(to_steps(problem), range(problem.op_count), guard=LimitGuard(Limits()))
    assert evaluate_order(problem, better).peak_bytes == brute_force(problem)


@given(st.integers(0, 10**6), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_improving_never_raises_a_peak(seed, in_place):
    problem = random_problem(seed, 60, in_place=in_place)
    steps = to_steps(problem)
    better = improve_peak(steps, range(60), guard=LimitGuard(Limits()), states=100)
    assert evaluate_order(problem, better).peak_bytes <= evaluate_order(problem, range(60)).peak_bytes
    start, end = window_at(profile(steps, better).between, 30, 16)
    assert 0 <= start <= 30 < end <= 60

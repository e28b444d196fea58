from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.search.downsets import beam_order
from neaptide.schedule.order.search.lattice import Lattice
from neaptide.schedule.order.steps import to_steps
from schedule.order.order_problems import brute_force, random_problem
from support.drawn import examples


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

from hypothesis import given
from hypothesis import strategies as st

from layout_play import random_problem, renumbered
from neaptide.layout.placement import by_life, by_size, order_by, program_order
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide_peers.layouts.orders import ORDERS, BufferKeys

SEEDS = st.integers(0, 10**9)


@given(SEEDS)
def test_keys_are_those_counted_step_by_step(seed):
    problem = random_problem(seed, 25, gaps=False)
    keys = BufferKeys.of(problem)
    buffers = problem.buffers
    live = {
        t: frozenset(i for i, b in enumerate(buffers) if b.start <= t < b.end)
        for t in range(max(b.end for b in buffers))
    }
    nbytes = {t: sum(buffers[i].nbytes for i in alive) for t, alive in live.items()}
    maximal = {a for a in live.values() if not any(a < other for other in live.values())}
    for i, b in enumerate(buffers):
        life = range(b.start, b.end)
        assert keys.overlaps[i] == len(frozenset().union(*(live[t] for t in life))) - 1
        assert keys.contention[i] == max(nbytes[t] for t in life)
        assert keys.sections[i] == sum(i in alive for alive in maximal)
    by_area = sorted(range(len(buffers)), key=lambda i: keys.areas[i])
    areas = [buffers[i].nbytes * (buffers[i].end - buffers[i].start) for i in by_area]
    assert areas == sorted(areas)


@given(SEEDS)
def test_keys_of_buffers_with_gaps_exist(seed):
    problem = random_problem(seed, 25)
    keys = BufferKeys.of(problem)
    assert (keys.contention > 0).all()
    assert (keys.sections > 0).all()


@given(SEEDS)
def test_orders_do_not_depend_on_numbering(seed):
    problem = random_problem(seed, 25, gaps=False, fixed=False)
    other = renumbered(problem, seed)
    keys, other_keys = BufferKeys.of(problem), BufferKeys.of(other)
    for columns in ORDERS.values():
        rows = [
            [
                (b.start, b.end, b.nbytes, b.alignment)
                for b in map(p.buffers.__getitem__, order_by(p, *columns(k)))
            ]
            for p, k in ((problem, keys), (other, other_keys))
        ]
        assert rows[0] == rows[1]


def test_areas_beyond_64_bits_are_compared_exactly():
    large = 1 << 60
    problem = LayoutProblem(
        (Buffer("a", 0, large, large - 1), Buffer("b", 0, large, large), Buffer("c", 0, 9, 1))
    )
    keys = BufferKeys.of(problem)
    assert order_by(problem, *ORDERS["area"](keys)) == [1, 0, 2]


def test_program_order_is_by_start_and_then_as_listed():
    problem = LayoutProblem((Buffer("a", 5, 6, 1), Buffer("b", 0, 2, 9), Buffer("c", 0, 7, 5)))
    assert program_order(problem) == [1, 2, 0]
    assert program_order(problem, -problem.sizes) == [1, 2, 0]


def test_breadth_goes_through_steps_by_bytes_live():
    problem = LayoutProblem(
        (Buffer("a", 0, 1, 10), Buffer("b", 1, 2, 6), Buffer("c", 1, 2, 7), Buffer("d", 2, 3, 11))
    )
    keys = BufferKeys.of(problem)
    assert order_by(problem, *ORDERS["breadth"](keys)) == [2, 1, 3, 0]


@given(SEEDS)
def test_orders_of_the_default_are_those_of_the_grid(seed):
    problem = random_problem(seed, 25)
    keys = BufferKeys.of(problem)
    assert by_size(problem) == order_by(problem, *ORDERS["size"](keys))
    assert by_life(problem) == order_by(problem, *ORDERS["life"](keys))

"""Symbolic sizes, live bytes and peaks are those of the static graph of each shape; lists make legal orders."""

from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.schedule import Schedule
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.steps import to_steps
from neaptide.schedule.symbolic.lists import SymbolicState, list_order
from neaptide.schedule.symbolic.orders import spliced
from neaptide.schedule.symbolic.peaks import OrderPeaks, largest
from neaptide.schedule.symbolic.problem import symbolic_problem
from schedule.symbolic.symbolic_graphs import problem_orders, shapes_of, symbolic_graphs
from support.drawn import examples


@given(st.data())
def test_live_bytes_and_peak_are_those_of_every_shape(data):
    graph = data.draw(symbolic_graphs())
    shapes = data.draw(st.lists(st.sampled_from(shapes_of(graph)), min_size=1, max_size=4))
    problem = symbolic_problem(graph, device="cpu")
    order = data.draw(problem_orders(problem.structure))
    peaks = OrderPeaks(problem)
    live = [problem.store.expression(known) for known in peaks.live(order)]
    peak = peaks.peak(order)
    for shape in shapes:
        static = memory_profile(with_sizes(graph, shape), Schedule.from_nodes(graph, order), device="cpu")
        assert tuple(size.evaluate(shape) for size in live) == static.bytes_at
        assert peak.evaluate(shape) == static.peak_bytes
        assert evaluate_order(problem.at(shape), order).bytes_at == static.bytes_at


@given(symbolic_graphs(), st.booleans(), st.data())
def test_impacts_are_those_of_the_integer_state(graph, reverse, data):
    problem = symbolic_problem(graph, device="cpu")
    shape = data.draw(st.sampled_from(shapes_of(graph)))
    state = SymbolicState(problem, reverse=reverse)
    numbers = DownsetState(to_steps(problem.at(shape)), reverse=reverse)
    while state.ready:
        assert list(state.ready) == list(numbers.ready)
        for op in state.ready:
            impact = problem.store.expression(state.allocated_minus_freed(op)).evaluate(shape)
            assert impact == numbers.growth(op)
        op = data.draw(st.sampled_from(list(state.ready)))
        state.run(op)
        numbers.run(op)
    assert state.order() == numbers.order()


@given(symbolic_graphs(), st.booleans())
@settings(max_examples=examples(120))
def test_lists_make_legal_orders(graph, reverse):
    problem = symbolic_problem(graph, device="cpu")
    assert problem.structure.is_order(list_order(problem, reverse=reverse))


@given(symbolic_graphs(), st.data())
def test_what_is_left_of_a_peak_has_its_largest_at_every_shape(graph, data):
    problem = symbolic_problem(graph, device="cpu")
    sizes = [problem.store.known(size) for size in problem.sizes]
    left = largest(problem.store, sizes)
    assert set(left) <= set(sizes)
    shape = data.draw(st.sampled_from(shapes_of(graph)))
    numbers = [problem.store.expression(size).evaluate(shape) for size in left]
    assert max(numbers) == max(size.evaluate(shape) for size in problem.sizes)


@given(symbolic_graphs(), st.data())
def test_sampled_peaks_are_those_of_the_expressions(graph, data):
    problem = symbolic_problem(graph, device="cpu")
    peaks = OrderPeaks(problem)
    orders = data.draw(st.lists(problem_orders(problem.structure), min_size=2, max_size=2))
    for order in (*orders, spliced(*orders, cut=data.draw(st.integers(0, len(orders[0]))))):
        assert problem.structure.is_order(order)
        assert peaks.sampled(order) == peaks.peak(order).samples

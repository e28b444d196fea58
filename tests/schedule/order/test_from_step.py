import random

from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.from_step import step_order_problem
from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.steps import to_steps
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import conv_step, toy_registry
from support.drawn import examples


@given(st.integers(0, 10**6), st.integers(1, 25), st.integers(0, 99))
@settings(max_examples=examples(120), deadline=None)
def test_peaks_of_random_orders_are_those_of_the_step(seed, n, choice):
    graph = random_graph(seed, n)
    draw = random.Random(choice)
    workspace = {node.id: draw.randint(0, 300) for node in graph.nodes if draw.random() < 0.3}
    step = compile_problem(graph, toy_registry(), workspace=workspace)
    state = DownsetState(to_steps(step_order_problem(step)))
    while state.ready:
        state.run(draw.choice(list(state.ready)))
    order = state.order()
    assert evaluate_order(step_order_problem(step), order).peak_bytes == Evaluator(step, order).peak
    # With that order as the list order, the list order is it.
    again = step_order_problem(step, order)
    assert evaluate_order(again, range(n)).peak_bytes == Evaluator(step, order).peak


def test_a_whole_step_with_updates_and_statistics_keeps_its_bytes():
    made = conv_step(blocks=2)
    step = compile_problem(made.graph, made.registry, seconds=made.seconds)
    order = range(step.node_count)
    assert evaluate_order(step_order_problem(step), order).peak_bytes == Evaluator(step).peak

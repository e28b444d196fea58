import random

from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.schedule import Schedule
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.steps import to_steps
from neaptide_corpus.random_graphs import random_graph
from support.drawn import examples


@given(st.integers(0, 10**6), st.integers(0, 25), st.integers(0, 99))
@settings(max_examples=examples(120), deadline=None)
def test_bytes_equal_the_reference_for_random_orders(seed, n, choice):
    graph = random_graph(seed, n)
    rng = random.Random(choice)
    workspace = {node.id: rng.randint(0, 300) for node in graph.nodes if rng.random() < 0.3}
    sizes = {storage.id: rng.randint(1, 500) for storage in graph.storages if rng.random() < 0.3}
    problem = order_problem(graph, workspace=workspace, storage_bytes=sizes)
    state = DownsetState(to_steps(problem))
    while state.ready:
        state.run(rng.choice(list(state.ready)))
    for order in (range(n), state.order()):
        expected = memory_profile(
            graph, Schedule.from_nodes(graph, order), workspace=workspace, storage_bytes=sizes
        )
        assert evaluate_order(problem, order).peak_bytes == expected.peak_with_workspace_bytes

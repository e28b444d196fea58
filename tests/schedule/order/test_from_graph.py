import random

from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ir.schedule import Schedule
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.steps import to_steps
from neaptide_corpus.random_graphs import random_graph


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


def test_in_place_pairs_follow_the_op_table():
    mixing = OpRegistry([OpSpec("toy.mix", in_place=(0,))])
    pairs = []
    for seed in range(20):
        graph = random_graph(seed, 30)
        problem = order_problem(graph, in_place=True, registry=mixing)
        for node, op in zip(graph.nodes, problem.ops, strict=True):
            pairs += [(problem, node, op, pair) for pair in op.in_place]
        assert not any(op.in_place for op in order_problem(graph, in_place=True).ops)  # no row, no pair
    assert pairs
    for problem, node, op, (written, read) in pairs:
        assert node.op == "toy.mix"
        assert written in op.writes
        assert read in op.reads
        assert problem.storages[written].nbytes == problem.storages[read].nbytes
        assert not problem.storages[written].output


def test_without_in_place_there_are_no_pairs():
    assert not any(op.in_place for op in order_problem(random_graph(3, 30)).ops)

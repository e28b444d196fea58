from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.bounds import lower_bound_bytes, order_lower_bound_bytes
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.dependencies import predecessors
from neaptide.ir.schedule import Schedule
from neaptide_corpus.random_graphs import random_graph
from neaptide_corpus.training_steps import toy_registry
from support.drawn import graphs
from support.together import together


def all_orders(graph):
    before = predecessors(graph)
    for order in permutations(range(len(graph.nodes))):
        place = {node: index for index, node in enumerate(order)}
        if all(place[p] < place[n] for n in order for p in before[n]):
            yield order


@together("seed", range(40))
def test_bounds_hold_for_every_order(seed):
    graph = random_graph(seed, 3 + seed % 4)
    workspace = {seed % 3: 17}
    peaks = [
        memory_profile(
            graph, Schedule.from_nodes(graph, order), workspace=workspace
        ).peak_with_workspace_bytes
        for order in all_orders(graph)
    ]
    baseline = memory_profile(graph, Schedule.program_order(graph), workspace=workspace)
    low = lower_bound_bytes(graph, workspace=workspace)
    high = order_lower_bound_bytes(graph, workspace=workspace)
    assert low <= high <= min(peaks) <= baseline.peak_with_workspace_bytes


@given(graphs(), st.integers(0, 100))
def test_bounds_are_ordered_and_never_above_program_order(graph, scratch):
    workspace = {node.id: scratch for node in graph.nodes[::3]}
    peak = memory_profile(graph, Schedule.program_order(graph), workspace=workspace).peak_with_workspace_bytes
    low, high = (f(graph, workspace=workspace) for f in (lower_bound_bytes, order_lower_bound_bytes))
    assert low <= high <= peak


def test_a_chain_that_keeps_its_head_is_bounded_exactly():
    b = GraphBuilder("chain", toy_registry())
    x = b.input("x", (1,))
    (a,) = b.node("toy.mix", x, outputs=["a: f32[10]"])
    (c,) = b.node("toy.mix", a, outputs=["c: f32[20]"])
    (d,) = b.node("toy.mix", c, outputs=["d: f32[20]"])
    (e,) = b.node("toy.mix", d, a, outputs=["e: f32[1]"])
    b.output(e)
    graph = b.finish()
    assert lower_bound_bytes(graph) == 4 + 160
    assert order_lower_bound_bytes(graph) == 4 + 40 + 160


def test_all_outputs_together_bound_the_peak():
    b = GraphBuilder("outputs", toy_registry())
    x = b.input("x", (1,))
    b.output(*(b.node("toy.mix", x, outputs=["a: f32[10]"])[0] for _ in range(3)))
    assert lower_bound_bytes(b.finish()) == 4 + 120

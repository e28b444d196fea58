"""Order from data and effects, against what running the program would show."""

import random

from hypothesis import given
from hypothesis import strategies as st

from neaptide.ir.dependencies import needed_inputs, ordered_effects, predecessors
from neaptide.ir.schedule import Schedule, StepKind
from support.drawn import graphs, node_orders, schedules, segmented
from support.hand_graphs import in_place_graph
from support.together import together


def _run(graph, order):
    """What every read sees: the node that last wrote each storage; and the order of draws."""
    contents = {s: ("caller", s) for s in graph.input_storages()}
    seen, chain = {}, []
    for number in order:
        node = graph.nodes[number]
        needed = {graph.values[v].storage for v in needed_inputs(graph, node)} - {None}
        seen[number] = tuple(sorted((s, contents.get(s)) for s in needed))
        for storage in graph.created_storages(node):
            contents[storage] = number
        for access in node.effects.writes:
            contents[access.storage] = number
        chain += [(name, number) for name in ordered_effects(node)]
    reads = {
        n: tuple((a.storage, dict(seen[n]).get(a.storage)) for a in graph.nodes[n].effects.reads)
        for n in order
    }
    return reads, chain, {s: contents.get(s) for s in range(len(graph.storages))}


@given(st.data())
def test_any_legal_order_gives_every_read_the_same_contents(data):
    graph = data.draw(graphs(max_nodes=12))
    order = data.draw(node_orders(graph))
    assert sorted(order) == list(range(len(graph.nodes)))
    assert _run(graph, order) == _run(graph, range(len(graph.nodes)))


@given(st.data())
def test_no_order_crosses_a_segment_and_every_other_order_is_left(data):
    plain = data.draw(graphs(max_nodes=12))
    graph = data.draw(segmented(plain))
    segment_of = [number for number, s in enumerate(graph.segments) for _ in range(s.start, s.end)]
    order = data.draw(node_orders(graph))
    assert [segment_of[node] for node in order] == segment_of
    place = {node: position for position, node in enumerate(data.draw(node_orders(plain)))}
    # Any order of the plain graph, its segments put one after the other, is one of the graph in segments.
    gathered = sorted(place, key=lambda node: (segment_of[node], place[node]))
    where = {node: position for position, node in enumerate(gathered)}
    assert all(
        where[other] < where[node] for node, before in enumerate(predecessors(graph)) for other in before
    )


@given(st.data())
def test_program_order_is_legal(data):
    graph = data.draw(segmented(data.draw(graphs())))
    for node, before in enumerate(predecessors(graph)):
        assert all(other < node for other in before)
        assert list(before) == sorted(set(before))


@given(st.data())
def test_schedules_run_every_node_once(data):
    graph = data.draw(graphs(max_nodes=8))
    steps = data.draw(schedules(graph)).steps
    assert {step.kind for step in steps} <= {StepKind.COMPUTE}
    assert sorted(step.target for step in steps) == list(range(len(graph.nodes)))


def test_edges_of_mutation_and_views_by_hand():
    # mm, t (view of h), relu_ (writes h), dropout(v), item, scale(h), step_ (writes w)
    before = predecessors(in_place_graph())
    assert before[1] == (0,)
    assert before[2] == (0,)
    assert before[3] == (1, 2)
    assert before[5] == (0, 2, 4)
    assert before[6] == (0, 5)


@together("seed", range(3))
def test_a_repeated_node_is_a_recomputation(seed):
    graph = in_place_graph()
    order = [0, 1, 2, 0, 3, 0]
    random.Random(seed).shuffle(order)
    kinds = [(s.kind, s.occurrence) for s in Schedule.from_nodes(graph, order).steps if s.target == 0]
    assert kinds == [(StepKind.COMPUTE, 0), (StepKind.RECOMPUTE, 1), (StepKind.RECOMPUTE, 2)]

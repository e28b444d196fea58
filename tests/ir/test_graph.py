"""What is remembered of a graph: worked out once, and no part of what the graph is."""

import pickle
from dataclasses import replace

import pytest

from neaptide.ir.dependencies import needed_inputs, predecessors
from neaptide.ir.verify import verify
from support.hand_graphs import in_place_graph


def test_what_a_function_makes_of_a_graph_is_worked_out_once():
    asked = []

    def size(graph):
        asked.append(graph)
        return len(graph.nodes)

    graph = in_place_graph()
    assert graph.remembered(size) == graph.remembered(size) == len(graph.nodes)
    assert len(asked) == 1
    assert replace(graph, name="another").remembered(size) == len(graph.nodes)
    assert len(asked) == 2


def test_a_function_that_fails_is_asked_again():
    def fails(_graph):
        raise ValueError

    graph = in_place_graph()
    for _ in range(2):
        with pytest.raises(ValueError):
            graph.remembered(fails)


def test_graphs_are_equal_whatever_is_remembered_of_them():
    asked, fresh = in_place_graph(), in_place_graph()
    verify(asked)
    before = predecessors(asked)
    for node in asked.nodes:
        needed_inputs(asked, node)
    assert asked == fresh
    assert predecessors(pickle.loads(pickle.dumps(asked))) == before


def test_what_is_handed_out_may_be_changed():
    graph = in_place_graph()
    before = predecessors(graph)
    before[0] = (99,)
    assert predecessors(graph) != before

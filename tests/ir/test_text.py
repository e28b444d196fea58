"""Text form: golden files, exact round trip, errors with line and column."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Ref
from neaptide.ir.text.parser import parse_graph, renumbered
from neaptide.ir.text.writer import print_graph
from support.drawn import graphs
from support.hand_graphs import in_place_graph, loop_graph
from support.together import together


@pytest.mark.parametrize(("make", "name"), [(in_place_graph, "in_place"), (loop_graph, "loop")])
def test_text_is_golden_and_round_trips(make, name, golden):
    graph = make()
    text = print_graph(graph)
    golden(f"ir/{name}.txt", text)
    assert parse_graph(text) == graph
    assert print_graph(parse_graph(text)) == text


@given(graphs())
def test_random_graphs_round_trip(graph):
    assert parse_graph(print_graph(graph)) == graph


@given(graphs(min_nodes=1, max_nodes=8), st.randoms(use_true_random=False))
def test_any_numbering_round_trips(graph, shuffle):
    values, storages = list(range(len(graph.values))), list(range(len(graph.storages)))
    shuffle.shuffle(values)
    shuffle.shuffle(storages)
    mixed = renumbered(graph, values, storages)
    assert parse_graph(print_graph(mixed)) == mixed


def test_an_empty_graph_round_trips():
    graph = Graph((), (), (), (), ())
    assert parse_graph(print_graph(graph)) == graph


def test_inputs_that_stand_twice_round_trip():
    text = 'graph "g" {\n  input %x: f32[2]\n  %y: f32[2] = toy.add($0, $1) inputs(%x, %x) reads(@x)\n  output(%y)\n}\n'
    graph = parse_graph(text)
    assert graph.nodes[0].inputs == (0, 0)
    assert print_graph(graph) == text


def test_results_in_another_structure_round_trip():
    graph = in_place_graph()
    node = replace(graph.nodes[0], results=(None, Ref(0), (Ref(0),)))
    changed = replace(graph, nodes=(node, *graph.nodes[1:]))
    assert "returns([none, $0, [$0]])" in print_graph(changed)
    assert parse_graph(print_graph(changed)) == changed


def test_white_space_and_missing_source_fields_do_not_matter():
    graph = parse_graph('graph "g" {   input %x : f32[2]   output( %x ) }')
    assert print_graph(graph) == 'graph "g" {\n  input %x: f32[2]\n  output(%x)\n}\n'


HEAD = 'graph "g" {\n  input %x: f32[4]\n'


@together(
    ("text", "place", "what"),
    [
        (HEAD + "  %y: f32[4] = toy.a(%z)\n}", "line 3, column 22", "unknown value %z"),
        (HEAD + "  %y: f33[4] = toy.a(%x)\n}", "line 3, column 7", "unknown dtype 'f33'"),
        (HEAD + "  %y: f32[4] @z = toy.a(%x)\n}", "line 3, column 3", "unknown storage @z"),
        (HEAD + "  %x: f32[4] = toy.a(%x)\n}", "line 3", "second value"),
        (HEAD + "  %y: f32[{4+}] = toy.a(%x)\n}", "line 3, column 11", "malformed size"),
        (HEAD + "  %y: f32[4] = toy.a(%x, b=1, 2)\n}", "line 3, column 31", "positional argument"),
        (HEAD + "  %y: f32[4] kind(tmp) = toy.a(%x)\n}", "line 3, column 19", "unknown kind"),
        (HEAD + "  %y: f32[4] = toy.a(what)\n}", "line 3", "unexpected 'what'"),
        (HEAD + "  values(%x, %x)\n}", "line 3, column 9", "everything once"),
        (HEAD + "  !", "line 3, column 3", "unexpected character"),
        (HEAD, "line 3, column 1", "unexpected"),
        (HEAD + "}\n}", "line 4, column 1", "after the graph"),
        (HEAD + "  toy.a(%x)  # file\n}", "line 3, column 14", "file:line"),
        (HEAD + "  toy.a(%x)  # a:1 b c d e\n}", "line 3, column 14", "four fields"),
        (HEAD + '  toy.a(%x, "\\q")\n}', "line 3, column 13", "escape"),
        (HEAD + '  toy.a(%x, float("x"))\n}', "line 3, column 13", "unknown number"),
    ],
)
def test_malformed_text_names_line_and_column(text, place, what):
    with pytest.raises(VerifyError) as raised:
        parse_graph(text)
    assert what in raised.value.what
    assert place in (raised.value.where or "")


def test_parsed_graphs_are_verified():
    with pytest.raises(VerifyError, match="expected version 0"):
        parse_graph(HEAD + "  %y: f32[4] = toy.a(%x) reads(@x.1)\n}")

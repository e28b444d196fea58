"""Dims and relations of a graph: written, read, told apart, checked, kept by edits, settled by numbers."""

import re
from dataclasses import replace

import pytest

from neaptide.errors import SymbolicError, VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.edits.edit import GraphEdit, NodeDraft
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.nodes import Ref
from neaptide.ir.text.parser import parse_graph
from neaptide.ir.text.writer import print_graph
from neaptide.ir.verify import verify
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.size_expr import SizeExpr
from support.hand_graphs import loop_graph
from support.together import together

S0, S1, T = SizeExpr.dim("S0"), SizeExpr.dim("S1"), SizeExpr.dim("T")


def _reshaped():
    """A vector of S0 elements as S1 rows of 12."""
    b = GraphBuilder("reshaped")
    s0, s1 = b.dim("S0", 12, 4800), b.dim("S1", 1)
    b.relation(s0, 12 * s1)
    x = b.input("x", (s0,))
    (rows,) = b.node("toy.reshape", x, outputs=["rows: f32[{S1}, 12] @x"])
    (y,) = b.node("toy.relu", rows, outputs=["y: f32[{S1}, 12]"])
    b.output(y)
    return b.finish()


def test_text_and_json_round_trip():
    graph = _reshaped()
    text = print_graph(graph)
    assert "  dim S0 from 12 to 4800\n  dim S1 from 1\n  relation {S0} = {12*S1}\n  input" in text
    assert parse_graph(text) == graph
    assert parse_graph(print_graph(graph)) == graph


def test_an_operation_may_be_called_as_what_is_declared_begins():
    text = 'graph "g" {\n  input %x: f32[2]\n  dim.from(%x)\n  relation.of(%x)\n  output(%x)\n}\n'
    assert [node.op for node in parse_graph(text).nodes] == ["dim.from", "relation.of"]


@together(
    "other",
    [
        lambda g: replace(g, dims=(replace(g.dims[0], low=11), g.dims[1])),
        lambda g: replace(g, dims=(replace(g.dims[0], high=None), g.dims[1])),
        lambda g: replace(g, relations=()),
        lambda g: replace(g, relations=(Relation(S0, 6 * S1),)),
        lambda g: replace(g, dims=(), relations=()),
    ],
)
def test_fingerprint_tells_ranges_and_relations_apart(other):
    graph = _reshaped()
    assert fingerprint(other(graph)) != fingerprint(graph)


def test_fingerprint_does_not_depend_on_the_order_of_dims():
    graph = _reshaped()
    assert fingerprint(replace(graph, dims=graph.dims[::-1])) == fingerprint(graph)


@together(
    ("change", "message"),
    [
        ({"dims": (Dim("S0"),), "relations": ()}, "rows has the size S1, but dim S1 is not declared"),
        ({"dims": (Dim("S0"),)}, "S0 == 12.S1 uses dim S1, which is not declared"),
        ({"dims": ()}, "uses dim S0, which is not declared"),
        ({"dims": (Dim("S0", 5, 4), Dim("S1"))}, "S0 has the empty range 5..4"),
        ({"dims": (Dim("S0", -1), Dim("S1"))}, "no size is negative"),
        ({"dims": (Dim("S0"), Dim("S1"), Dim("S0"))}, "S0 is declared twice"),
        ({"dims": (Dim("S0"), Dim("S1"), Dim("max"))}, "'max' cannot name a dimension"),
        ({"relations": (Relation(S0, S0 + 1),)}, "never holds"),
        ({"relations": (Relation(S0, S0),)}, "says nothing"),
    ],
)
def test_faults_are_found(change, message):
    with pytest.raises(VerifyError, match=message):
        verify(replace(_reshaped(), **change))


def test_a_size_in_an_argument_has_to_be_declared():
    graph = _reshaped()
    node = replace(graph.nodes[1], args=(*graph.nodes[1].args, (T, 3)))
    with pytest.raises(VerifyError, match="size T, but dim T is not declared"):
        verify(replace(graph, nodes=(graph.nodes[0], node)))


def test_a_body_uses_the_dims_around_it_and_the_lengths_of_its_parts():
    graph = replace(loop_graph(), dims=(Dim("T", 1, 64),))
    verify(graph)
    assert parse_graph(print_graph(graph)) == graph
    with pytest.raises(VerifyError, match="dim T is not declared"):
        verify(replace(graph, dims=(Dim("U"),)))
    (loop,) = graph.nodes[0].regions
    declared = replace(loop, body=replace(loop.body, dims=(Dim("part"), Dim("T"))))
    nodes = (replace(graph.nodes[0], regions=(declared,)), *graph.nodes[1:])
    with pytest.raises(VerifyError, match="declares dims; it uses those of the graph around it"):
        verify(replace(graph, nodes=nodes))


def test_an_edit_keeps_them_and_may_not_bring_others():
    graph = _reshaped()
    edit = GraphEdit(graph)
    edited = edit.finish().graph
    assert (edited.dims, edited.relations) == (graph.dims, graph.relations)
    edit = GraphEdit(graph)
    made = edit.fresh("more", "float32", (T,))
    edit.insert_after(1, NodeDraft("toy.pad", (graph.nodes[1].outputs[0],), (made,), (Ref(0),)))
    with pytest.raises(VerifyError, match="dim T is not declared"):
        edit.finish()


def test_numbers_settle_dims_and_relations():
    graph = _reshaped()
    half = with_sizes(graph, {"S1": 4})
    assert half.dims == (Dim("S0", 12, 4800),)
    assert half.relations == (Relation(S0, SizeExpr.const(48)),)
    whole = with_sizes(graph, {"S0": 48, "S1": 4})
    assert (whole.dims, whole.relations) == ((), ())
    verify(whole)
    assert with_sizes(half, {"S0": 48}) == whole


@together(
    ("binding", "message"),
    [
        ({"S0": 4812, "S1": 401}, "S0 = 4812 is outside its range"),
        ({"S0": 0}, "the program holds for S0 in 12..4800"),
        ({"S0": 36, "S1": 4}, "S0 = 36, S1 = 4 break S0 == 12.S1"),
    ],
)
def test_numbers_outside_are_refused(binding, message):
    with pytest.raises(SymbolicError) as raised:
        with_sizes(_reshaped(), binding)
    assert re.search(message, raised.value.render())

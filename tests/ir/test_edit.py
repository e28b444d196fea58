"""GraphEdit: insertions, removals and replaced uses, with storages and versions worked out again."""

import pytest
from hypothesis import given

from hand_graphs import in_place_graph, loop_graph
from neaptide.errors import VerifyError
from neaptide.ir.edit import GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Ref
from neaptide.ir.text import print_graph
from neaptide.ir.text_parser import parse_graph
from neaptide.symbolic.size_expr import SizeExpr
from strategies import graphs


def lines(graph: Graph) -> list[str]:
    return [line.strip() for line in print_graph(graph).splitlines() if " = " in line]


CHAIN = """
graph "chain" {
  input %x: f32[4] kind(input)
  %a: f32[4] = toy.exp(%x) reads(@x)
  %b: f32[4] @a = toy.view(%a)
  %c: f32[4] @a.1 = toy.relu_(%b) reads(@a) writes(@a.1)
  %d: f32[4] = toy.sum(%a, %c) reads(@a.1)
  output(%d)
  segment "one" 0 2
  segment "two" 2 4
}
"""
FOUR = (SizeExpr.const(4),)


@given(graphs())
def test_an_edit_without_changes_shares_everything(graph):
    result = GraphEdit(graph).finish()
    assert result == graph
    assert all(new is old for new, old in zip(result.nodes, graph.nodes, strict=True))
    assert all(new is old for new, old in zip(result.values, graph.values, strict=True))
    assert all(new is old for new, old in zip(result.storages, graph.storages, strict=True))


@pytest.mark.parametrize("make", [in_place_graph, loop_graph])
def test_hand_graphs_survive(make):
    assert GraphEdit(make()).finish() == make()


def test_views_and_results_in_place_follow_a_replaced_value():
    graph = parse_graph(CHAIN)
    edit = GraphEdit(graph)
    copy = edit.fresh("copy", "float32", FOUR)
    edit.insert_after(0, NodeDraft("toy.copy", (1,), (copy,), (Ref(0),)))
    edit.replace_uses(1, copy, nodes=[1])
    assert lines(edit.finish()) == [
        "%a: f32[4] = toy.exp(%x) reads(@x)",
        "%copy: f32[4] = toy.copy(%a) reads(@a)",
        "%b: f32[4] @copy = toy.view(%copy)",
        "%c: f32[4] @copy.1 = toy.relu_(%b) reads(@copy) writes(@copy.1)",
        "%d: f32[4] = toy.sum(%a, %c) reads(@a, @copy.1)",
    ]


def test_versions_are_counted_again_after_an_insertion():
    edit = GraphEdit(parse_graph(CHAIN))
    again = edit.alias("again", "float32", FOUR, (SizeExpr.const(1),), SizeExpr.const(0), of=1)
    edit.insert_before(2, NodeDraft("toy.neg_", (1,), (again,), (Ref(0),), writes=(1,)))
    result = edit.finish()
    assert "%again: f32[4] @a.1 = toy.neg_(%a) reads(@a) writes(@a.1)" in lines(result)
    assert "%c: f32[4] @a.2 = toy.relu_(%b) reads(@a.1) writes(@a.2)" in lines(result)
    assert [(s.start, s.end) for s in result.segments] == [(0, 2), (2, 5)]


def test_insertions_keep_their_order():
    edit = GraphEdit(parse_graph(CHAIN))
    for side, names in ((edit.insert_before, "pq"), (edit.insert_after, "rs")):
        for name in names:
            side(0, NodeDraft("toy.exp", (0,), (edit.fresh(name, "float32", FOUR),), (Ref(0),)))
    last = edit.fresh("r", "float32", FOUR)
    handle = edit.insert_before(3, NodeDraft("toy.exp", (0,), (last,), (Ref(0),)))
    edit.insert_before(handle, NodeDraft("toy.exp", (0,), (edit.scalar("n", "int64"),), (Ref(0),)))
    result = edit.finish()
    assert [line.split(":")[0] for line in lines(result)] == [
        "%p",
        "%q",
        "%a",
        "%r",
        "%s",
        "%b",
        "%c",
        "%n",
        "%r_1",
        "%d",
    ]
    assert [(s.start, s.end) for s in result.segments] == [(0, 6), (6, 10)]


def test_a_removed_node_takes_its_storage_along():
    edit = GraphEdit(parse_graph(CHAIN))
    edit.replace_uses(3, 1)
    edit.remove(2)
    edit.remove(1)
    result = edit.finish("short")
    assert lines(result) == [
        "%a: f32[4] = toy.exp(%x) reads(@x)",
        "%d: f32[4] = toy.sum($0, $1) inputs(%a, %a) reads(@a)",
    ]
    assert result.name == "short"
    assert [(s.start, s.end) for s in result.segments] == [(0, 1), (1, 2)]
    assert len(result.storages) == 3


def test_uses_of_a_removed_value_are_refused():
    edit = GraphEdit(parse_graph(CHAIN))
    edit.remove(1)
    with pytest.raises(VerifyError, match=r"%b is used by toy\.relu_, but not made"):
        edit.finish()
    with pytest.raises(VerifyError, match="removed"):
        edit.draft(1)
    edit = GraphEdit(parse_graph(CHAIN))
    edit.remove(3)
    with pytest.raises(VerifyError, match="output %d"):
        edit.finish()


def test_a_node_can_be_replaced_by_one_with_the_same_outputs():
    edit = GraphEdit(parse_graph(CHAIN))
    edit.replace_node(0, NodeDraft("toy.log", (0,), (1,), (Ref(0), 2.0), (("base", 10),), reads=()))
    assert lines(edit.finish())[0] == "%a: f32[4] = toy.log(%x, 2.0, base=10)"


def test_outputs_follow_replaced_uses_unless_told_otherwise():
    edit = GraphEdit(parse_graph(CHAIN))
    edit.replace_uses(4, 1)
    assert edit.finish().outputs == (1,)
    edit = GraphEdit(parse_graph(CHAIN))
    edit.replace_uses(4, 1, outputs=False)
    assert edit.finish().outputs == (4,)


def test_a_use_before_the_producer_is_refused():
    edit = GraphEdit(parse_graph(CHAIN))
    edit.replace_uses(0, 4)
    with pytest.raises(VerifyError, match="used before it is made"):
        edit.finish()


@given(graphs(min_nodes=1))
def test_a_copy_of_the_first_input_can_stand_in_everywhere(graph):
    edit = GraphEdit(graph)
    source = graph.values[graph.inputs[0]]
    copy = edit.fresh("copy", source.dtype, source.shape)
    handle = edit.insert_before(0, NodeDraft("toy.copy", (source.id,), (copy,), (Ref(0),)))
    users = [node.id for node in graph.nodes if source.id in node.inputs]
    edit.replace_uses(source.id, copy, nodes=users)
    result = edit.finish()
    assert edit.draft(handle).op == "toy.copy"
    assert result.consumers()[source.id] == [0]
    assert len(result.nodes) == len(graph.nodes) + 1


def test_long_chains_of_insertions_need_no_recursion():
    edit = GraphEdit(parse_graph(CHAIN))
    anchor, value = 0, 1
    for _ in range(3000):
        made = edit.fresh("link", "float32", FOUR)
        anchor = edit.insert_after(anchor, NodeDraft("toy.exp", (value,), (made,), (Ref(0),)))
        value = made
    assert [node.op for node in edit.finish().nodes][:3001] == ["toy.exp"] * 3001

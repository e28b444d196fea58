"""GraphEdit: insertions, removals and replaced uses, with storages and versions worked out again."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.random_edits import edited_graphs
from neaptide.errors import VerifyError
from neaptide.ir.edits.edit import Edited, GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Ref
from neaptide.ir.text.parser import parse_graph
from neaptide.ir.text.writer import print_graph
from neaptide.ir.verify import verify, verify_edited
from neaptide.symbolic.size_expr import SizeExpr
from support.drawn import examples, graphs, segmented
from support.hand_graphs import in_place_graph, loop_graph


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
    result = GraphEdit(graph).finish().graph
    assert result == graph
    assert all(new is old for new, old in zip(result.nodes, graph.nodes, strict=True))
    assert all(new is old for new, old in zip(result.values, graph.values, strict=True))
    assert all(new is old for new, old in zip(result.storages, graph.storages, strict=True))


@pytest.mark.parametrize("make", [in_place_graph, loop_graph])
def test_hand_graphs_survive(make):
    assert GraphEdit(make()).finish().graph == make()


def test_views_and_results_in_place_follow_a_replaced_value():
    graph = parse_graph(CHAIN)
    edit = GraphEdit(graph)
    copy = edit.fresh("copy", "float32", FOUR)
    edit.insert_after(0, NodeDraft("toy.copy", (1,), (copy,), (Ref(0),)))
    edit.replace_uses(1, copy, nodes=[1])
    assert lines(edit.finish().graph) == [
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
    result = edit.finish().graph
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
    result = edit.finish().graph
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
    result = edit.finish("short").graph
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
    assert lines(edit.finish().graph)[0] == "%a: f32[4] = toy.log(%x, 2.0, base=10)"


def test_outputs_follow_replaced_uses_unless_told_otherwise():
    edit = GraphEdit(parse_graph(CHAIN))
    edit.replace_uses(4, 1)
    assert edit.finish().graph.outputs == (1,)
    edit = GraphEdit(parse_graph(CHAIN))
    edit.replace_uses(4, 1, outputs=False)
    assert edit.finish().graph.outputs == (4,)


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
    result = edit.finish().graph
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
    assert [node.op for node in edit.finish().graph.nodes][:3001] == ["toy.exp"] * 3001


@given(graphs(min_nodes=1), st.data())
def test_what_comes_from_the_old_graph_is_what_it_was(graph, data):
    edit = GraphEdit(graph)
    for number in range(data.draw(st.integers(0, 4))):
        anchor = data.draw(st.integers(0, len(graph.nodes) - 1))
        made = edit.fresh(f"new{number}", "float32", FOUR)
        insert = data.draw(st.sampled_from([edit.insert_before, edit.insert_after]))
        insert(anchor, NodeDraft("toy.fill", (), (made,)))
    edited = edit.finish()
    assert len(edited.node_of) == len(edited.graph.nodes)
    for new, old in zip(edited.graph.nodes, edited.node_of, strict=True):
        assert (old == -1) == (new.op == "toy.fill" and not new.inputs)
        if old >= 0:
            was = graph.nodes[old]
            assert (new.op, new.args) == (was.op, was.args)
            assert tuple(edited.value_of[v] for v in new.outputs) == was.outputs
    for new, old in zip(edited.graph.storages, edited.storage_of, strict=True):
        assert old == -1 or graph.storages[old].nbytes == new.nbytes
    assert Edited.unchanged(graph).then(edited) == edited
    again = GraphEdit(edited.graph).finish()
    assert edited.then(again) == replace(edited, graph=again.graph)


def test_changes_one_after_another_name_the_first_graph():
    first = GraphEdit(parse_graph(CHAIN))
    copy = first.fresh("copy", "float32", FOUR)
    first.insert_after(0, NodeDraft("toy.copy", (1,), (copy,), (Ref(0),)))
    first.replace_uses(1, copy, nodes=[1])
    once = first.finish()
    second = GraphEdit(once.graph)
    twice_made = second.fresh("twice", "float32", FOUR)
    second.insert_before(0, NodeDraft("toy.exp", (0,), (twice_made,), (Ref(0),)))
    twice = once.then(second.finish())
    assert [node.op for node in twice.graph.nodes][:3] == ["toy.exp", "toy.exp", "toy.copy"]
    assert twice.node_of == (-1, 0, -1, 1, 2, 3)
    assert [twice.graph.values[v].name for v, old in enumerate(twice.value_of) if old < 0] == [
        "copy",
        "twice",
    ]


def test_a_node_is_moved_to_another_place_and_segment():
    edit = GraphEdit(parse_graph(CHAIN))
    extra = edit.fresh("extra", "float32", FOUR)
    handle = edit.insert_after(0, NodeDraft("toy.exp", (0,), (extra,), (Ref(0),)))
    edit.move_after(handle, 2)
    edited = edit.finish()
    assert [line.split(":")[0] for line in lines(edited.graph)] == ["%a", "%b", "%c", "%extra", "%d"]
    assert [(s.start, s.end) for s in edited.graph.segments] == [(0, 2), (2, 5)]
    assert edited.node_of == (0, 1, 2, -1, 3)

    edit.move_after(handle, 0)
    assert edit.finish().node_of == (0, -1, 1, 2, 3)

    back = GraphEdit(edited.graph)
    back.move_after(3, 0)
    assert back.finish().node_of == (0, 3, 1, 2, 4)
    wrong = GraphEdit(edited.graph)
    wrong.move_after(1, 2)
    with pytest.raises(VerifyError, match="used before it is made"):
        wrong.finish()


def test_a_node_cannot_be_moved_beside_what_it_places():
    edit = GraphEdit(parse_graph(CHAIN))
    edit.move_after(0, 2)
    for node, anchor in ((2, 0), (0, 0)):
        with pytest.raises(VerifyError, match="placed by it"):
            edit.move_after(node, anchor)


@settings(max_examples=examples(200))
@given(graphs(min_nodes=1, max_nodes=14).flatmap(segmented), st.data())
def test_what_an_edit_verifies_is_what_the_whole_graph_needs(graph, data):
    edited = data.draw(edited_graphs(graph))
    verify(edited.graph)
    touched = set(edited.touched)
    untouched = [node for node in range(len(edited.node_of)) if node not in touched]
    were = [edited.node_of[node] for node in untouched]
    assert were == sorted(set(were) - {-1})
    for new, old in zip(untouched, were, strict=True):
        node, was = edited.graph.nodes[new], graph.nodes[old]
        assert (node.op, node.args, node.kwargs, node.regions) == (was.op, was.args, was.kwargs, was.regions)
        for values, before in ((node.inputs, was.inputs), (node.outputs, was.outputs)):
            assert tuple(edited.value_of[v] for v in values) == before
            for value, other in zip(values, before, strict=True):
                storage = edited.graph.values[value].storage
                assert (None if storage is None else edited.storage_of[storage]) == graph.values[
                    other
                ].storage


@settings(max_examples=examples(200))
@given(graphs(min_nodes=2, max_nodes=14), st.data())
def test_an_edit_refuses_what_the_whole_graph_would_be_refused_for(graph, data):
    """Verified only where it has changed, and verified whole: the same graphs are refused."""
    broken = data.draw(broken_parts(graph))
    nodes = {k for k, (new, old) in enumerate(zip(broken.nodes, graph.nodes, strict=True)) if new != old}
    values = {k for k, (new, old) in enumerate(zip(broken.values, graph.values, strict=True)) if new != old}
    assert is_refused(lambda: verify(broken)) == is_refused(lambda: verify_edited(broken, nodes, values))


def is_refused(check):
    try:
        check()
    except VerifyError:
        return True
    return False


@st.composite
def broken_parts(draw, graph):
    """A graph with some nodes in other places, other inputs, other versions or other shapes."""
    nodes, values = list(graph.nodes), list(graph.values)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(nodes) - 1))
        node = nodes[at]
        kind = draw(st.sampled_from(["swap", "input", "output", "version", "shape", "op"]))
        if kind == "swap":
            other = draw(st.integers(0, len(nodes) - 1))
            nodes[at], nodes[other] = replace(nodes[other], id=at), replace(node, id=other)
        elif kind == "input" and node.inputs:
            value = draw(st.integers(0, len(values) - 1))
            nodes[at] = replace(node, inputs=(value, *node.inputs[1:]))
        elif kind == "output" and node.outputs:
            value = draw(st.integers(0, len(values) - 1))
            nodes[at] = replace(node, outputs=(value, *node.outputs[1:]))
        elif kind == "version" and node.effects.reads:
            first, *rest = node.effects.reads
            reads = (replace(first, version=first.version + 1), *rest)
            nodes[at] = replace(node, effects=replace(node.effects, reads=reads))
        elif kind == "shape" and node.outputs:
            value = values[node.outputs[0]]
            values[value.id] = replace(value, offset=SizeExpr.const(draw(st.integers(0, 99))))
        elif kind == "op":
            nodes[at] = replace(node, op=draw(st.sampled_from(["no name", "toy.mix"])))
    return replace(graph, nodes=tuple(nodes), values=tuple(values))

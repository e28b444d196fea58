"""Rewrites as data: replayed one after the other, refused with one sentence when they do not fit."""

from dataclasses import replace

import msgspec
import pytest

from neaptide.errors import RewriteError
from neaptide.ir.edits.edit import Edited, GraphEdit
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ir.text.parser import parse_graph
from neaptide.transform.rewrite import Rewrite, Rule, apply_rule, replay
from neaptide.transform.rules import RULES, described_rewrites
from support.together import together

ROWS = OpRegistry([OpSpec("toy.exp"), OpSpec("toy.mul")])
GRAPH = parse_graph(
    """graph "g" {
  input %x: f32[4] kind(input)
  %a: f32[4] = toy.exp(%x) reads(@x)
  %b: f32[4] = toy.exp(%x) reads(@x)
  %c: f32[4] = toy.mul(%a) reads(@a)
  %d: f32[4] = toy.mul(%b) reads(@b)
  %z: f32[4] = toy.mul(%c, %d) reads(@c, @d)
  output(%z)
}"""
)
FIRST, SECOND = Rewrite("common_subexpressions", (0, 1)), Rewrite("common_subexpressions", (1, 2))


def test_nodes_of_a_rewrite_are_those_of_the_graph_before_it():
    done = apply_rule(GRAPH, ROWS, RULES["common_subexpressions"])
    assert done.rewrites == (FIRST, SECOND)
    assert done.edited.node_of == (0, 2, 4)
    assert replay(GRAPH, ROWS, done.rewrites, RULES) == done.edited


@together(
    ("rewrite", "why"),
    [
        (replace(FIRST, rule="nobody"), "there is no rule of that name, only "),
        (replace(FIRST, nodes=(0, 5)), "node 5 is none of the 5 of its graph"),
        (replace(FIRST, nodes=(0, 2)), "toy.mul does not compute what node 0 does"),
        (replace(FIRST, nodes=(1, 0)), "it must name two or more nodes, ascending, and no settings"),
        (replace(FIRST, settings=(("n", 2),)), "it must name two or more nodes, ascending, and no settings"),
        (replace(FIRST, keeps_bits=False), "it says that it does not keep the bits, and its rule says other"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(rewrite, why):
    rest = " (" + rewrite.rule + ") cannot be applied: "
    with pytest.raises(RewriteError) as caught:
        replay(GRAPH, ROWS, [rewrite], RULES)
    assert caught.value.what.startswith("rewrite 0" + rest + why)
    with pytest.raises(RewriteError) as caught:
        replay(GRAPH, ROWS, [FIRST, SECOND, rewrite], RULES)
    assert caught.value.what.startswith("rewrite 2" + rest)


def test_a_rewrite_is_plain_json():
    rewrite = Rewrite("r", (3, 4), (("axis", 1), ("name", "x"), ("parts", (2, 2, 1)), ("whole", True)), False)
    assert msgspec.json.decode(msgspec.json.encode(rewrite), type=Rewrite) == rewrite
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"rule": "r", "nodes": [-1]}, Rewrite)


def test_a_rewrite_moves_with_its_nodes():
    there = Edited(GRAPH, (-1, -1, 1, -1, 0), (), (), ())
    assert FIRST.moved(there) == replace(FIRST, nodes=(4, 2))
    assert FIRST.moved(replace(there, node_of=(-1, -1, -1, -1, 0))) is None


def test_an_objection_leaves_a_place_alone():
    def objection(edited):
        return "it is watched" if 1 not in edited.node_of else None

    done = apply_rule(GRAPH, ROWS, RULES["common_subexpressions"], objection)
    assert done.rewrites == ()
    assert done.edited.graph is GRAPH


def without_outputs(graph, *_):
    edited = GraphEdit(graph).finish()
    return replace(edited, graph=replace(edited.graph, outputs=()))


def test_a_rule_may_not_change_what_callers_bind():
    careless = Rule(name="careless", summary="", find=lambda *_: (), apply=without_outputs)
    with pytest.raises(RewriteError, match="changes the outputs"):
        replay(GRAPH, ROWS, [Rewrite("careless", (0,))], {"careless": careless})


def test_what_is_done_at_each_node_is_counted_by_nodes():
    twice = Rewrite("in_place", (3, 5), (), True)
    inside = Rewrite("in_place", (1,), (), True, within=(7,))
    region = Rewrite("fission", (1, 2, 3), (), False)
    first, second = described_rewrites([twice, inside, region])
    assert "(in_place), at 3 places, 1 of them within a loop" in first
    assert "(fission), at 1 place;" in second

"""Equal operations run once: nothing that is computed changes, and program order takes no more bytes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.errors import RewriteError
from neaptide.ir.registry import OpRegistry, OpSpec, Trait
from neaptide.ir.text.parser import parse_graph
from neaptide.transform.rewrite import Rewrite, apply_rule, replay
from neaptide.transform.rules import RULES
from neaptide_corpus.training_steps import toy_registry
from support.drawn import graphs
from transform.fission_play import peak
from transform.graph_play import doubled, played

RULE = RULES["common_subexpressions"]
ROWS = OpRegistry(
    [
        *(OpSpec(f"toy.{name}") for name in ("exp", "mul", "scale")),
        *(OpSpec(f"toy.{name}", traits=frozenset({Trait.VIEW})) for name in ("view", "conj")),
        OpSpec("toy.scatter", deterministic=False),
        OpSpec("toy.relu_", writes=(0,)),
    ]
)


def written(body, output="%z", inputs="input %x: f32[4] kind(input)"):
    """A graph as text. An operation that says nothing of it reads all its operands as they were made."""
    lines = []
    lies_on = {}
    for line in body.splitlines():
        result, operands = re.match(r"%(\w+).*\((.*?)\)", line).groups()
        lies_on[result] = on.group(1) if (on := re.search(r"f32\[4\] (@[\w.]+)", line)) else f"@{result}"
        names = re.findall(r"%(\w+)", operands)
        says = "reads(" in line or lies_on[result] == f"@{names[0]}"
        reads = ", ".join(dict.fromkeys(lies_on.get(name, f"@{name}") for name in names))
        lines.append(line if says else f"{line} reads({reads})")
    return "\n".join(['graph "g" {', inputs, *lines, f"output({output})", "}"])


def found(text):
    return list(RULE.find(parse_graph(text), ROWS))


@given(st.data())
def test_a_graph_computes_the_same_and_takes_no_more_bytes(data):
    graph = doubled(data.draw, data.draw(graphs(max_nodes=15))).graph
    after = apply_rule(graph, toy_registry(), RULE)
    assert played(after.edited.graph) == played(graph)
    assert peak(after.edited.graph) <= peak(graph)
    assert replay(graph, toy_registry(), after.rewrites, RULES) == after.edited
    assert not list(RULE.find(after.edited.graph, toy_registry()))


def test_three_equal_casts_are_one():
    text = written(
        "%a: f32[4] = toy.exp(%x)\n%p: f32[4] = toy.mul(%a, %x)\n"
        "%b: f32[4] = toy.exp(%x)\n%q: f32[4] = toy.mul(%b, %p)\n"
        "%c: f32[4] = toy.exp(%x)\n%z: f32[4] = toy.mul(%c, %q, %a, %b)"
    )
    assert found(text) == [Rewrite("common_subexpressions", (0, 2, 4))]
    edited = RULE.apply(parse_graph(text), ROWS, found(text)[0])
    assert [node.op for node in edited.graph.nodes] == ["toy.exp", "toy.mul", "toy.mul", "toy.mul"]
    assert edited.node_of == (0, 1, 3, 5)


def test_views_that_are_equal_step_by_step_are_one_operand():
    same = written(
        "%u: f32[4] @x = toy.view(%x)\n%a: f32[4] = toy.exp(%u)\n"
        "%v: f32[4] @x = toy.view(%x)\n%b: f32[4] = toy.exp(%v)\n%z: f32[4] = toy.mul(%a, %b)"
    )
    assert found(same) == [Rewrite("common_subexpressions", (1, 3))]
    other = same.replace("%v: f32[4] @x = toy.view", "%v: f32[4] @x = toy.conj")
    assert found(other) == []


@pytest.mark.parametrize(("first", "second"), [("0", "0.0"), ("0.0", "-0.0"), ("1", "true")])
def test_numbers_that_are_equal_in_python_alone_are_not(first, second):
    text = written(
        f"%a: f32[4] = toy.scale(%x, {first})\n%b: f32[4] = toy.scale(%x, {second})\n"
        "%z: f32[4] = toy.mul(%a, %b)"
    )
    assert found(text) == []
    assert found(text.replace(f"%x, {second}", f"%x, {first}")) == [Rewrite("common_subexpressions", (0, 1))]


def test_what_is_read_before_and_behind_a_write_is_not_equal():
    text = written(
        "%a: f32[4] = toy.exp(%x)\n%w: f32[4] @x.1 = toy.relu_(%x) reads(@x) writes(@x.1)\n"
        "%b: f32[4] = toy.exp(%x) reads(@x.1)\n%z: f32[4] = toy.mul(%a, %b)"
    )
    assert found(text) == []


@pytest.mark.parametrize(
    ("body", "output", "reason"),
    [
        (
            (
                "%a: f32[4] = toy.exp(%x)\n%b: f32[4] = toy.exp(%x)\n"
                "%w: f32[4] @b.1 = toy.relu_(%b) reads(@b) writes(@b.1)\n%z: f32[4] = toy.mul(%a, %w)"
            ),
            "%z",
            "one of the results is written into later",
        ),
        (
            "%a: f32[4] = toy.exp(%x)\n%b: f32[4] = toy.exp(%x)",
            "%a, %b",
            "two of the results are outputs, and the caller may write into one of them",
        ),
        (
            (
                "%a: f32[4] = toy.exp(%x)\n%p: f32[4] = toy.mul(%a)\n%b: f32[4] = toy.exp(%p)\n"
                "%c: f32[4] = toy.exp(%x)\n%z: f32[4] = toy.mul(%b, %c)"
            ),
            "%z",
            None,  # the first result is let go before the next is made,
        ),
    ],
)
def test_refusals_have_reasons(body, output, reason):
    text = written(body, output)
    assert found(text) == []
    if reason is None:
        return
    with pytest.raises(RewriteError, match=reason):
        RULE.apply(parse_graph(text), ROWS, Rewrite(RULE.name, (0, 1)))


def test_random_and_unknown_operations_and_those_of_other_bits_are_left_alone():
    for op in ("toy.scatter", "toy.nobody_knows"):
        text = written(f"%a: f32[4] = {op}(%x)\n%b: f32[4] = {op}(%x)\n%z: f32[4] = toy.mul(%a, %b)")
        assert found(text) == []
        with pytest.raises(RewriteError, match="may do more, or other"):
            RULE.apply(parse_graph(text), ROWS, Rewrite(RULE.name, (0, 1)))


def test_equal_views_are_joined_when_they_are_named():
    text = written(
        "%u: f32[4] @x = toy.view(%x)\n%v: f32[4] @x = toy.view(%x)\n%w: f32[4] @x = toy.conj(%x)\n"
        "%z: f32[4] = toy.mul(%u, %v, %w)"
    )
    assert found(text) == []
    graph = parse_graph(text)
    edited = RULE.apply(graph, ROWS, Rewrite(RULE.name, (0, 1)))
    assert edited.node_of == (0, 2, 3)
    assert played(edited.graph) == played(graph)
    with pytest.raises(RewriteError, match="does not compute"):
        RULE.apply(graph, ROWS, Rewrite(RULE.name, (0, 2)))
    returned = parse_graph(text.replace("output(%z)", "output(%u, %v)"))
    with pytest.raises(RewriteError, match="outputs"):
        RULE.apply(returned, ROWS, Rewrite(RULE.name, (0, 1)))

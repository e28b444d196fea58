"""A region becomes a loop: what stays, what moves, what goes, and why a region may not be one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.graph import Segment
from neaptide.ir.registry import OpRegistry, OpSpec, Trait
from neaptide.ir.text.parser import parse_graph
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.loop import extract_loop
from neaptide.transform.fission.split import Split
from neaptide.transform.rewrite import Rewrite, replay
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission
from support.together import together
from transform.fission_play import assert_close, assert_same_numbers, random_inputs, run_measured

ROWS = OpRegistry(
    [
        *(OpSpec(f"toy.{name}") for name in ("exp", "mul", "sum", "like", "wide")),
        OpSpec("toy.fill_", writes=(0,)),
        OpSpec("neaptide.copy"),
        OpSpec("toy.view", traits=frozenset({Trait.VIEW})),
    ]
)


def graph_of(*lines, outputs):
    text = "\n".join(f"  {line}" for line in lines)
    return parse_graph(
        f'graph "g" {{\n  input %x: f32[7, 4] kind(input)\n  input %w: f32[4] kind(input)\n{text}\n'
        f"  output({', '.join('%' + name for name in outputs)})\n}}"
    )


def extracted(graph, nodes, *, sums=(), step=2, axes=None, rows=ROWS):
    """The region in parts along the dim of 7."""
    names = {value.name: value.id for value in graph.values}
    found = (
        axes
        if axes is not None
        else {
            value.id: Along([extent.constant_value() for extent in value.shape].index(7))
            for value in graph.values
            if 7 in [extent.constant_value() for extent in value.shape]
        }
    )
    split = Split(SizeExpr.const(7), SizeExpr.const(step), found, frozenset(names[name] for name in sums))
    return extract_loop(graph, rows, nodes, split)


def ops(graph):
    return [node.op.partition(".")[2] for node in graph.nodes]


EXP = "%a: f32[7, 4] = toy.exp(%x) reads(@x)"
MUL = "%b: f32[7, 4] = toy.mul(%a) reads(@a)"


def test_what_needs_the_region_moves_behind_it_and_all_else_stays():
    graph = graph_of(
        EXP,
        "%u: f32[4] = toy.exp(%w) reads(@w)",  # does not need the region
        "%o: f32[7, 4] = toy.wide(%a) reads(@a)",  # needs it
        "%p: f32[7, 4] = toy.wide(%o) reads(@o)",
        "%v: f32[4] = toy.mul(%u) reads(@u)",
        "%b: f32[7, 4] = toy.mul(%a, %v) reads(@a, @v)",
        outputs=["p", "b"],
    )
    edited = extracted(graph, [0, 5])
    assert ops(edited.graph) == ["exp", "mul", "loop", "wide", "wide"]
    loop = edited.graph.nodes[2]
    # Results keep their names and ids; the caller of a value does not see that it was made in parts.
    assert [edited.graph.values[v].name for v in loop.outputs] == ["a", "b"]
    assert [edited.value_of[v] for v in loop.outputs] == [
        graph.nodes[0].outputs[0],
        graph.nodes[5].outputs[0],
    ]
    assert edited.node_of == (1, 4, 5, 2, 3)


def test_dead_nodes_and_uses_of_a_shape_do_not_make_a_value_leave():
    graph = graph_of(
        EXP,
        "%t: f32[4, 7] strides(1, 4) @a = toy.view(%a)",
        "%d: f32[7, 4] = toy.exp(%t) reads(@a)",  # nobody uses it
        MUL,
        "%s: f32[] = toy.sum(%b) reads(@b)",
        "%l: f32[7, 4] = toy.like(%a)",  # needs no more than a shape
        outputs=["s", "l"],
    )
    edited = extracted(graph, [0, 3, 4], sums=["s"])
    assert ops(edited.graph) == ["loop", "constant", "like"]
    assert [edited.graph.values[v].name for v in edited.graph.nodes[0].outputs] == ["s"]
    stand_in = edited.graph.values[edited.graph.nodes[1].outputs[0]]
    assert [n.constant_value() for n in stand_in.shape] == [7, 4]
    assert edited.graph.storages[stand_in.storage].nbytes.constant_value() == 4


def test_a_node_in_front_that_needs_the_shape_of_a_result_is_given_a_stand_in():
    graph = graph_of(
        EXP,
        "%s: f32[] = toy.sum(%a) reads(@a)",
        "%half: f32[] = toy.mul(%s) reads(@s)",
        "%one: f32[] = toy.like(%half)",  # the gradient of the loss begins so
        "%g: f32[7, 4] = toy.mul(%a, %one) reads(@a, @one)",
        "%h: f32[4] = toy.sum(%g) reads(@g)",
        outputs=["half", "h"],
    )
    edited = extracted(graph, [0, 1, 4, 5], sums=["s", "h"])
    assert ops(edited.graph) == ["constant", "like", "loop", "mul"]
    # The same, when the node that needs the shape is in the region itself.
    inner = extracted(graph, [0, 1, 3, 4, 5], sums=["s", "h"])
    assert ops(inner.graph) == ["constant", "loop", "mul"]


def test_views_at_the_border_stay_outside():
    graph = graph_of(
        "%wt: f32[2, 2] @w = toy.view(%w)",
        "%a: f32[7, 4] = toy.exp(%x, %wt) reads(@x, @w)",
        "%s: f32[4] = toy.sum(%a) reads(@a)",
        "%sv: f32[2, 2] @s = toy.view(%s)",
        "%z: f32[2, 2] = toy.mul(%sv, %wt) reads(@s, @w)",
        outputs=["z"],
    )
    edited = extracted(graph, [0, 1, 2, 3], sums=["sv"])
    assert ops(edited.graph) == ["view", "loop", "view", "mul"]
    assert [edited.graph.values[v].name for v in edited.graph.nodes[1].outputs] == ["s"]


def test_a_result_may_be_overwritten_behind_the_loop():
    graph = graph_of(
        EXP,
        "%s: f32[4] = toy.sum(%a) reads(@a)",
        "%t: f32[4] @s.1 = toy.fill_(%s) reads(@s) writes(@s.1)",
        MUL,
        outputs=["s", "b"],
    )
    edited = extracted(graph, [0, 1, 3], sums=["s"])
    assert ops(edited.graph) == ["loop", "fill_"]


REFUSALS = [
    # lines after EXP, outputs, region, sums, why
    (
        [MUL, "%c: f32[7, 4] = toy.mul(%b) reads(@b)"],
        ["c"],
        [0, 2],
        [],
        r"0 \(toy.exp\) -> 1 \(toy.mul\) -> 2",
    ),
    (
        ["%b: f32[4] @w.1 = toy.fill_(%w, %a) reads(@w, @a) writes(@w.1)"],
        ["b"],
        [0, 1],
        [],
        "overwrites w, which",
    ),
    (["%s: f32[4] = toy.sum(%a) reads(@a)"], ["s"], [0, 1], [], "%s leaves the region, and is neither"),
    (
        ["%s: f32[4] = toy.sum(%a) reads(@a)", "%b: f32[7, 4] = toy.mul(%a, %s) reads(@a, @s)"],
        ["s", "b"],
        [0, 1, 2],
        ["s"],
        "%s is a sum over all parts, and a member needs it",
    ),
    (
        ["%v: f32[7, 2, 2] @a = toy.view(%a, [7, 2, 2])", "%b: f32[7, 4] = toy.mul(%v) reads(@a)"],
        ["a", "v", "b"],
        [0, 1, 2],
        [],
        "%a and %v leave the region and share a storage",
    ),
    (
        ["%b: f32[7, 9] = toy.wide(%a) reads(@a)", "%c: f32[7, 4] strides(9, 1) @b = toy.view(%b)"],
        ["c"],
        [0, 1],
        [],
        "",
    ),
]


@together(("lines", "outputs", "region", "sums", "why"), REFUSALS)
def test_refusals_say_what_is_in_the_way(lines, outputs, region, sums, why):
    graph = graph_of(EXP, *lines, outputs=outputs)
    if not why:  # a view at the border is no reason
        assert "loop" in ops(extracted(graph, region, sums=sums).graph)
        return
    with pytest.raises(RewriteError, match=why):
        extracted(graph, region, sums=sums)


def test_a_region_does_not_cross_a_segment():
    graph = graph_of(EXP, MUL, outputs=["b"])
    graph = replace(graph, segments=(Segment("forward", 0, 1), Segment("backward", 1, 2)))
    with pytest.raises(RewriteError, match="leaves the segment forward"):
        extracted(graph, [0, 1])


def test_parts_must_split_the_axis():
    graph = graph_of(EXP, MUL, outputs=["b"])
    with pytest.raises(RewriteError, match="parts of 7 do not split an axis of 7"):
        extracted(graph, [0, 1], step=7)


def test_parts_that_lie_in_several_places_are_neither_handed_over_nor_joined():
    graph = parse_graph(
        """graph "g" {
  input %x: f32[21, 4] kind(input)
  %a: f32[21, 4] = toy.exp(%x) reads(@x)
  %b: f32[3, 7, 4] @a = toy.view(%a, [3, 7, 4])
  %c: f32[3, 7, 4] = toy.mul(%b) reads(@a)
  output(%c)
}"""
    )
    names = {value.name: value.id for value in graph.values}
    axes = {names["x"]: Along(0, 3), names["a"]: Along(0, 3), names["b"]: Along(1), names["c"]: Along(1)}
    with pytest.raises(RewriteError, match="%x is handed to the region, and a part of it lies in several"):
        extracted(graph, [0, 1, 2], axes=axes)
    assert ops(extracted(graph, [1, 2], axes=axes).graph) == ["exp", "view", "loop"]
    with pytest.raises(RewriteError, match="%a leaves the region, and a part of it lies in several"):
        extracted(replace(graph, outputs=(names["a"],)), [0], axes=axes)


def inner_axis_graph():
    """Columns in parts: a part of %x along dim 1 is not contiguous, and the body views it."""
    return parse_graph(
        """graph "g" {
  input %x: f32[3, 7, 4] kind(input)
  input %w: f32[4, 4] kind(input)
  %v: f32[21, 4] @x = aten.view.default(%x, [21, 4])
  %m: f32[21, 4] = aten.mm.default(%v, %w) reads(@x, @w)
  %r: f32[3, 7, 4] @m = aten.view.default(%m, [3, 7, 4])
  %y: f32[3, 7, 4] = aten.relu.default(%r) reads(@m)
  %s: f32[4] = aten.sum.dim_IntList(%y, [0, 1]) reads(@y)
  output(%y, %s)
}"""
    )


@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_part_along_an_inner_axis_is_copied_and_the_copy_is_counted(step):
    graph = inner_axis_graph()
    names = {value.name: value.id for value in graph.values}
    axes = {names[name]: Along(1) for name in ("x", "r", "y")} | {
        names[name]: Along(0, 3) for name in ("v", "m")
    }
    edited = extracted(graph, range(5), sums=["s"], axes=axes, step=step, rows=registry())
    (loop,) = edited.graph.nodes[0].regions
    assert [node.op for node in loop.body.nodes[:2]] == ["neaptide.copy", "aten.view.default"]
    assert_same_numbers(edited.graph, graph)


def test_an_axis_under_one_row_needs_no_copy():
    graph = parse_graph(
        """graph "g" {
  input %x: f32[1, 7, 4] kind(input)
  %v: f32[7, 4] @x = aten.view.default(%x, [7, 4])
  %y: f32[7, 4] = aten.relu.default(%v) reads(@x)
  output(%y)
}"""
    )
    edited = extracted(graph, [0, 1], rows=registry())
    (loop,) = edited.graph.nodes[0].regions
    assert [node.op for node in loop.body.nodes] == ["aten.view.default", "aten.relu.default", "neaptide.put"]
    assert_same_numbers(edited.graph, graph)


def test_a_loss_that_needs_more_than_its_shape_says_is_charged_for_its_part():
    graph = parse_graph(
        """graph "g" {
  input %x: f32[7, 4] kind(input)
  input %y: f32[7, 4] kind(input)
  %a: f32[7, 4] = aten.relu.default(%x) reads(@x)
  %l: f32[] bytes(112) = aten.mse_loss.default(%a, %y, 2) reads(@a, @y)
  output(%l)
}"""
    )
    edited = extracted(graph, [0, 1], sums=["l"], rows=registry())
    inputs = random_inputs(graph)
    found = run_measured(edited.graph, inputs)
    assert_close(found, run_measured(graph, inputs))
    assert found[0].untyped_storage().nbytes() == 4


def test_two_views_of_one_storage_are_both_read():
    graph = parse_graph(
        """graph "g" {
  input %x: f32[7, 4] kind(input)
  %t: f32[4, 7] strides(1, 4) @x = aten.t.default(%x)
  %m: f32[4, 4] = aten.mm.default(%t, %x) reads(@x)
  %k: f32[7, 4] = aten.mm.default(%x, %m) reads(@x, @m)
  output(%m, %k, %t)
}"""
    )
    edited = extracted(graph, [1], sums=["m"], rows=registry())
    assert_same_numbers(edited.graph, graph)


def test_a_number_of_the_host_is_handed_over():
    graph = parse_graph(
        """graph "g" {
  input %x: f32[7, 4] kind(input)
  input %rate: host f64
  %half: host f64 = host.mul(%rate, 0.5)
  %a: f32[7, 4] = aten.mul.Tensor(%x, %half) reads(@x)
  %y: f32[7, 4] = aten.relu.default(%a) reads(@a)
  output(%y)
}"""
    )
    edited = extracted(graph, [1, 2], rows=registry())
    assert_same_numbers(edited.graph, graph)


LEGAL = Rewrite("fission", (0, 1), (("inputs", (0, -1, 0, 1)), ("length", 7), ("parts", 4)), keeps_bits=False)
REAL = (
    "%a: f32[7, 4] = aten.exp.default(%x) reads(@x)",
    "%b: f32[7, 4] = aten.mul.Tensor(%a, %w) reads(@a, @w)",
)


def with_setting(name, setting):
    return replace(LEGAL, settings=tuple((k, setting if k == name else v) for k, v in LEGAL.settings))


@together(
    ("rewrite", "why"),
    [
        (replace(LEGAL, nodes=(0, 0)), "each once"),
        (replace(LEGAL, settings=LEGAL.settings[1:]), "the settings inputs, length, parts"),
        (replace(LEGAL, keeps_bits=True), "says that it keeps the bits"),
        (with_setting("length", 8), "an axis of 8 does not lie in dim 0 of %x"),
        (with_setting("length", "7"), "its setting length is no number"),
        (with_setting("parts", 1), "an axis of 7 cannot be split into 1 parts"),
        (with_setting("parts", 8), "an axis of 7 cannot be split into 8 parts"),
        (with_setting("inputs", (0, -1, 0)), "no list of runs of 4 numbers"),
        (with_setting("inputs", (0, -2, 0, 1)), "aten.exp.default has no place -2"),
        (with_setting("inputs", (2, -1, 0, 1)), "it has no node 2"),
        (with_setting("inputs", (0, -1, 5, 1)), "does not lie in dim 5 of %x"),
        (with_setting("inputs", (0, -1, 0, 1, 0, -1, 1, 1)), "handed over along two axes"),
        (with_setting("inputs", (0, -1, 0, 0)), "along one that it does not have"),
        (with_setting("inputs", ()), "does not depend on the axis"),
    ],
)
def test_a_rewrite_from_a_file_is_checked(rewrite, why):
    graph = graph_of(*REAL, outputs=["b"])
    assert "loop" in ops(replay(graph, registry(), [LEGAL], RULES).graph)
    with pytest.raises(RewriteError, match=why):
        replay(graph, registry(), [rewrite], RULES)


@pytest.mark.parametrize(
    ("lines", "outputs", "why"),
    [
        (("%s: f32[7, 4] = aten._softmax.default(%x, 0, false) reads(@x)",), ["s"], "needs the whole axis"),
        (("%s: f32[4] = aten.mean.dim(%x, [0]) reads(@x)",), ["s"], "takes a mean"),
        (("%s: f32[7, 4] = mylib.secret.default(%x) reads(@x)",), ["s"], "no row says"),
        (("%s: f32[7, 4] = aten.bernoulli.default(%x) reads(@x) rng(cpu)",), ["s"], "draws random numbers"),
        (("%s: f32[4, 7] strides(7, 1) @x = aten.as_strided.default(%x, [4, 7], [7, 1])",), ["s"], "no row"),
        (("%s: host f64 = aten._local_scalar_dense.default(%x) reads(@x) host",), ["s"], "no row says"),
        (
            (
                "%s: f32[4] = aten.sum.dim_IntList(%x, [0]) reads(@x)",
                "%r: f32[4] = aten.relu.default(%s) reads(@s)",
            ),
            ["r"],
            "needs the complete %s",
        ),
        (
            (
                "%s: f32[4] = aten.sum.dim_IntList(%x, [0]) reads(@x)",
                "%r: f32[7, 4] = aten.sub.Tensor(%x, %s) reads(@x, @s)",
            ),
            ["r"],
            "needs a sum over all parts",
        ),
    ],
)
def test_what_parts_would_change_is_refused_with_the_reason(lines, outputs, why):
    graph = graph_of(*lines, outputs=outputs)
    rewrite = fission(graph, range(len(lines)), length=7, parts=2, inputs={graph.inputs[0]: Along(0)})
    with pytest.raises(RewriteError, match=why):
        replay(graph, registry(), [rewrite], RULES)


def pooled(*outputs):
    return parse_graph(
        'graph "g" {\n  input %x: f32[1, 2, 8, 4] kind(input)\n'
        "  %y: f32[1, 2, 4, 2], %places: i64[1, 2, 4, 2] = aten.max_pool2d_with_indices.default(%x, [2, 2], [2, 2])"
        " reads(@x)\n"
        "  %grad: f32[1, 2, 4, 2] = aten.neg.default(%y) reads(@y)\n"
        "  %back: f32[1, 2, 8, 4] = aten.max_pool2d_with_indices_backward.default("
        "%grad, %x, [2, 2], [2, 2], [0, 0], [1, 1], false, %places) reads(@grad, @x, @places)\n"
        f"  output({', '.join(outputs)})\n}}"
    )


def in_rows(graph, nodes):
    rewrite = fission(graph, nodes, length=4, parts=2, inputs={graph.inputs[0]: Along(2)})
    return replay(graph, registry(), [rewrite], RULES).graph


def test_places_within_a_part_are_used_within_it():
    graph = pooled("%back")
    assert_same_numbers(in_rows(graph, [0, 1, 2]), graph)


@pytest.mark.parametrize(("outputs", "nodes"), [(("%back", "%places"), [0, 1, 2]), (("%back",), [0, 1])])
def test_places_within_a_part_must_not_leave_it(outputs, nodes):
    with pytest.raises(RewriteError, match="%places means something within its part only"):
        in_rows(pooled(*outputs), nodes)

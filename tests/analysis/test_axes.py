"""An axis followed through small graphs: what carries it, what is a sum, what stands in its way."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.analysis.axes.follow import Condition, Why, follow
from neaptide.analysis.axes.lines import regrouped
from neaptide.analysis.axes.whole_graph import axes_in_words, graph_axes, operations_without_axes
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along, Merge, Need
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.values import Kind, Value
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr


class Play:
    """A graph built line by line; what follows from an axis is told by name."""

    def __init__(self):
        self.builder = GraphBuilder("play")

    def input(self, name, shape, kind=Kind.INPUT, dtype="float32"):
        return self.builder.input(name, shape, kind=kind, dtype=dtype)

    def run(self, op, *args, to, **more):
        declared = to if isinstance(to, list) else [to]
        made = self.builder.node(op, *args, outputs=declared, **more)
        return made if isinstance(to, list) else made[0]

    def follow(self, seeds, length, outputs):
        self.builder.output(*outputs)
        self.graph = self.builder.finish()
        self.found = follow(self.graph, registry(), seeds, length)
        return self.found

    def names(self, values):
        return {self.graph.values[v].name for v in values}

    def why(self):
        return {(self.graph.nodes[b.node].op, b.why) for b in self.found.barriers}


def linear_layer():
    """y = x @ w + b over 7 rows, its sum, and the gradients of w and b."""
    p = Play()
    x = p.input("x", (7, 4))
    w, b = p.input("w", (4, 3), Kind.PARAMETER), p.input("b", (3,), Kind.PARAMETER)
    y = p.run("aten.addmm.default", b, x, w, to="y: f32[7, 3]")
    loss = p.run("aten.sum.default", y, to="loss: f32[]")
    grad = p.run("aten.ones_like.default", y, to="grad: f32[7, 3]")
    xt = p.run("aten.t.default", x, to="xt: f32[4, 7] strides(1, 4) @x")
    gw = p.run("aten.mm.default", xt, grad, to="gw: f32[4, 3]")
    gb = p.run("aten.sum.dim_IntList", grad, [0], True, to="gb: f32[1, 3]")
    flat = p.run("aten.view.default", gb, [3], to="flat: f32[3] @gb")
    return p, x, w, (loss, gw, flat)


def test_rows_of_a_layer_are_parallel_and_its_gradients_are_sums():
    p, x, _, outputs = linear_layer()
    found = p.follow({x: Along(0)}, 7, outputs)
    assert p.names(found.axes) == {"x", "y", "grad", "xt"}
    assert found.axes[outputs[1] - 1] == Along(1), "the transposed operand"
    assert p.names(found.sums) == {"loss", "gw", "gb", "flat"}
    assert not found.barriers
    assert not found.conditions
    assert not found.untouched


def test_the_inner_axis_of_a_product_adds_its_bias_once_too_often():
    p, x, w, outputs = linear_layer()
    found = p.follow({x: Along(1), w: Along(0)}, 4, outputs)
    assert p.names(found.sums) == {"y", "loss"}
    (addend,) = (c for c in found.conditions if c.need is Need.ADDEND)
    assert p.names(addend.values) == {"b"}
    assert not found.barriers


def test_terms_stay_terms_only_through_what_is_linear():
    p = Play()
    x = p.input("x", (7, 4))
    total = p.run("aten.sum.dim_IntList", x, [0], to="total: f32[4]")
    twice = p.run("aten.add.Tensor", total, total, to="twice: f32[4]")
    half = p.run("aten.mul.Tensor", twice, 0.5, to="half: f32[4]")
    more = p.run("aten.add.Tensor", half, 1, to="more: f32[4]")
    square = p.run("aten.mul.Tensor", total, total, to="square: f32[4]")
    whole = p.run("aten._to_copy.default", total, to="whole: i64[4]")
    scaled = p.run("aten.mul.Tensor", x, total, to="scaled: f32[7, 4]")
    found = p.follow({x: Along(0)}, 7, (more, square, whole, scaled))
    assert p.names(found.sums) == {"total", "twice", "half"}
    assert p.names(found.behind) == {"more", "square", "whole"}
    assert {b.why for b in found.barriers} == {Why.COMPLETE}
    assert scaled in found.axes
    assert found.conditions == (Condition(p.graph.producer(scaled), Need.COMPLETE, (total,)),)


def test_an_axis_that_is_needed_whole_goes_on_behind():
    p = Play()
    x = p.input("x", (5, 7))
    y = p.run("aten._softmax.default", x, -1, False, to="y: f32[5, 7]")
    z = p.run("aten.relu.default", y, to="z: f32[5, 7]")
    found = p.follow({x: Along(1)}, 7, (z,))
    assert p.why() == {("aten._softmax.default", Why.WHOLE)}
    assert found.axes[y] == found.axes[z] == Along(1)
    assert y in found.behind
    assert p.graph.producer(z) in found.members


def test_an_operation_without_a_row_is_a_barrier_and_its_result_is_cut_where_it_must_be():
    p = Play()
    x = p.input("x", (7, 4))
    y = p.run("mine.bend.default", x, to="y: f32[7, 4]")
    view = p.run("aten.view.default", y, [28], to="view: f32[28] @y")
    z = p.run("aten.add.Tensor", x, y, to="z: f32[7, 4]")
    found = p.follow({x: Along(0)}, 7, (z, view))
    assert p.why() == {("mine.bend.default", Why.NO_ROW)}
    assert found.axes[y] == Along(0)
    assert found.axes[view] == Along(0), "who uses a value that is cut is run in parts too"
    assert operations_without_axes(p.graph, registry()) == {"mine.bend.default": 1}


def test_what_must_be_cut_is_made_in_parts_where_nobody_needs_it_whole():
    p = Play()
    x = p.input("x", (7, 4))
    zeros = p.run("aten.zeros.default", [7, 4], to="zeros: f32[7, 4]")
    row = p.input("row", (1, 4), Kind.PARAMETER)
    wide = p.run("aten.expand.default", row, [7, 4], to="wide: f32[7, 4] strides(0, 1) @row")
    places = p.run("aten.arange.default", 7, to="places: i64[7]")
    table = p.input("table", (9, 4), Kind.PARAMETER)
    found_rows = p.run("aten.embedding.default", table, places, to="rows: f32[7, 4]")
    total = zeros
    for k, term in enumerate((x, wide, found_rows)):
        total = p.run("aten.add.Tensor", total, term, to=f"total_{k}: f32[7, 4]")
    found = p.follow({x: Along(0)}, 7, (total,))
    members = {p.graph.nodes[n].op for n in found.members}
    assert {"aten.zeros.default", "aten.expand.default", "aten.embedding.default"} <= members
    assert {p.graph.nodes[n].op for n in found.untouched} == {"aten.arange.default"}
    assert found.axes[places] == Along(0), "made whole, and cut"
    assert row not in found.axes
    assert table not in found.axes


def test_a_value_that_somebody_needs_whole_is_made_whole():
    p = Play()
    x = p.input("x", (7, 4))
    zeros = p.run("aten.zeros.default", [7, 4], to="zeros: f32[7, 4]")
    y = p.run("aten.add.Tensor", x, zeros, to="y: f32[7, 4]")
    bent = p.run("mine.bend.default", zeros, to="bent: f32[7, 4]")
    found = p.follow({x: Along(0)}, 7, (y, bent))
    assert p.graph.producer(zeros) in found.untouched
    assert found.axes[zeros] == Along(0)


def test_one_axis_of_a_node_cannot_lie_in_two_dims():
    p = Play()
    q, k = p.input("q", (7, 4)), p.input("k", (4, 7))
    scores = p.run("aten.mm.default", q, k, to="scores: f32[7, 7]")
    found = p.follow({q: Along(0), k: Along(1)}, 7, (scores,))
    assert p.why() == {("aten.mm.default", Why.WHOLE)}
    assert "dim 0 of %q, dim 1 of %k" in found.barriers[0].reason


def test_views_that_join_dims_keep_the_axis_and_split_it_off_again():
    p = Play()
    x = p.input("x", (5, 7, 4))
    flat = p.run("aten.view.default", x, [35, 4], to="flat: f32[35, 4] @x")
    y = p.run("aten.relu.default", flat, to="y: f32[35, 4]")
    back = p.run("aten.view.default", y, [5, 7, 4], to="back: f32[5, 7, 4] @y")
    total = p.run("aten.sum.dim_IntList", y, [0], to="total: f32[4]")
    rows = p.follow({x: Along(0)}, 5, (back, total))
    assert rows.axes[y] == Along(0)
    assert rows.axes[back] == Along(0)
    words = follow(p.graph, registry(), {x: Along(1)}, 7)
    assert words.axes[y] == Along(0, outer=5)
    assert words.axes[back] == Along(1)
    assert total in words.sums
    tokens = follow(p.graph, registry(), {flat: Along(0)}, 35)
    assert tokens.axes == {flat: Along(0), y: Along(0)}
    assert {p.graph.nodes[b.node].op for b in tokens.barriers} == {"aten.view.default"}


def test_a_result_in_place_is_seen_by_those_who_hold_the_operand():
    p = Play()
    x = p.input("x", (7, 4))
    y = p.run("aten.relu.default", x, to="y: f32[7, 4]")
    p.run("aten.mul_.Tensor", y, 2, to="z: f32[7, 4] @y", writes=[y])
    late = p.run("aten.neg.default", y, to="late: f32[7, 4]")
    found = p.follow({x: Along(0)}, 7, (late,))
    assert found.axes[late] == Along(0)


def test_what_was_written_through_a_view_is_in_doubt():
    p = Play()
    x = p.input("x", (7, 2))
    buffer = p.run("aten.zeros.default", [7, 4], to="buffer: f32[7, 4]")
    left = p.run("aten.slice.Tensor", buffer, 1, 0, 2, to="left: f32[7, 2] strides(4, 1) @buffer")
    p.run("aten.copy_.default", left, x, to="filled: f32[7, 2] strides(4, 1) @buffer", writes=[left])
    late = p.run("aten.neg.default", buffer, to="late: f32[7, 4]")
    found = p.follow({x: Along(0)}, 7, (late,))
    assert ("aten.neg.default", Why.WHOLE) in p.why()
    assert late in found.behind


def test_a_view_of_what_was_written_through_another_is_in_doubt():
    p = Play()
    x = p.input("x", (7, 2))
    buffer = p.run("aten.zeros.default", [7, 4], to="buffer: f32[7, 4]")
    left = p.run("aten.slice.Tensor", buffer, 1, 0, 2, to="left: f32[7, 2] strides(4, 1) @buffer")
    p.run("aten.copy_.default", left, x, to="filled: f32[7, 2] strides(4, 1) @buffer", writes=[left])
    flat = p.run("aten.view.default", buffer, [28], to="flat: f32[28] @buffer")
    late = p.run("aten.neg.default", flat, to="late: f32[28]")
    found = p.follow({x: Along(0)}, 7, (late,))
    assert ("aten.view.default", Why.WHOLE) in p.why()
    assert {flat, late} <= found.behind


def test_what_is_written_without_a_result_keeps_its_axis():
    p = Play()
    x = p.input("x", (7, 4))
    state = [p.input(name, (4,), Kind.BUFFER) for name in ("weight", "bias", "mean", "variance")]
    made = ["y: f32[7, 4]", "m: f32[4]", "s: f32[4]"]
    p.run("aten.native_batch_norm.default", x, *state, True, 0.1, 1e-5, to=made, writes=state[2:])
    late = p.run("aten.neg.default", state[2], to="late: f32[4]")
    channels = p.follow({x: Along(1)}, 4, (late,))
    assert channels.axes[late] == Along(0)
    assert not channels.barriers
    rows = follow(p.graph, registry(), {x: Along(0)}, 7)
    assert {p.graph.nodes[b.node].op for b in rows.barriers} == {"aten.native_batch_norm.default"}
    assert late in rows.behind, "statistics of the whole batch"


def test_a_seed_must_fit():
    p = Play()
    x = p.input("x", (7, 4))
    p.builder.output(x)
    graph = p.builder.finish()
    for seed, length in ((Along(0), 3), (Along(2), 7), (Along(0, 2), 7)):
        with pytest.raises(RewriteError, match="does not lie in dim"):
            follow(graph, registry(), {x: seed}, length)


def test_shapes_alone_carry_no_sum():
    p = Play()
    x = p.input("x", (7, 4))
    total = p.run("aten.sum.dim_IntList", x, [0], to="total: f32[4]")
    ones = p.run("aten.ones_like.default", total, to="ones: f32[4]")
    found = p.follow({x: Along(0)}, 7, (ones,))
    assert p.graph.producer(ones) in found.untouched
    assert ones not in found.sums


@st.composite
def regroupings(draw):
    """A shape, the same elements under another shape, and an axis that lies in one of its dims."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    shape, other = [1], [1]
    for factor in factors:
        for extents in (shape, other):
            if draw(st.booleans()):
                extents.append(factor)
            else:
                extents[-1] *= factor
    dim = draw(st.integers(0, len(shape) - 1))
    parts = [k for k in range(2, shape[dim] + 1) if shape[dim] % k == 0]
    length = draw(st.sampled_from(parts)) if parts else 1
    outers = [k for k in range(1, shape[dim] // length + 1) if shape[dim] // length % k == 0]
    return shape, other, Along(dim, draw(st.sampled_from(outers))), length


def _places(shape, along, length):
    """For each element the place along the axis."""
    inner = shape[along.dim] // along.outer // length
    places = np.arange(shape[along.dim]) // inner % length
    return np.broadcast_to(places.reshape([-1 if d == along.dim else 1 for d in range(len(shape))]), shape)


@given(regroupings())
def test_views_keep_the_place_of_every_element(case):
    shape, other, along, length = case
    values = [
        Value(k, f"v{k}", "float32", tuple(map(SizeExpr.const, extents)), storage=k)
        for k, extents in enumerate((shape, other))
    ]
    found = regrouped(values[0], along, length, values[1])
    places = _places(shape, along, length).reshape(other)
    candidates = [
        Along(dim, outer)
        for dim, extent in enumerate(other)
        for outer in range(1, extent // length + 1)
        if extent % (outer * length) == 0
        and np.array_equal(_places(other, Along(dim, outer), length), places)
    ]
    if length > 1:
        assert ([found] if found else []) == candidates
    assert math.prod(shape) == math.prod(other)


def test_all_axes_of_a_graph():
    p, x, w, outputs = linear_layer()
    p.builder.output(*outputs)
    graph = p.builder.finish()
    axes = {axis.length: axis for axis in graph_axes(graph, registry())}
    assert set(axes) == {7, 4, 3}
    assert (axes[7].origin, axes[4].origin) == ((x, 0), (x, 1))
    assert len(axes[7].nodes) == len(graph.nodes)
    assert (w, 0) in axes[4].places
    assert (w, 1) in axes[3].places
    assert axes_in_words(graph, registry())[0] == "axis of 7 through 7 operations, from x dim 0"


def test_an_axis_of_the_batch_is_found_where_a_view_joins_it_with_another_first():
    p = Play()
    x, w = p.input("x", (6, 5, 4)), p.input("w", (4, 3), Kind.PARAMETER)
    rows = p.run("aten.view.default", x, [30, 4], to="rows: f32[30, 4] @x")
    p.builder.output(p.run("aten.mm.default", rows, w, to="y: f32[30, 3]"))
    graph = p.builder.finish()
    begun = {axis.origin: axis for axis in graph_axes(graph, registry())}
    for dim, length in enumerate((6, 5)):
        assert begun[x, dim].length == length
        assert begun[x, dim].nodes == (0, 1)


def test_results_that_are_the_same_in_each_part_are_no_sums():
    p = Play()
    x = p.input("x", (7, 4))
    channels = [p.input(name, (4,), Kind.BUFFER) for name in ("weight", "bias", "mean", "variance")]
    y, _, _ = p.run(
        "aten.native_batch_norm.default", x, *channels, False, 0.1, 1e-5,
        to=["y: f32[7, 4]", "m: f32[0]", "s: f32[0]"],
    )  # fmt: skip
    found = p.follow({x: Along(0)}, 7, (y,))
    (line,) = found.members.values()
    assert line.results == {0: Along(0), 1: Merge.SAME, 2: Merge.SAME}
    assert not found.sums


def test_numbers_that_count_within_a_part_stay_in_it():
    p = Play()
    x = p.input("x", (1, 2, 8, 4))
    y, places = p.run(
        "aten.max_pool2d_with_indices.default", x, [2, 2], [2, 2],
        to=["y: f32[1, 2, 4, 2]", "places: i64[1, 2, 4, 2]"],
    )  # fmt: skip
    grad = p.run("aten.neg.default", y, to="grad: f32[1, 2, 4, 2]")
    args = (grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
    back = p.run("aten.max_pool2d_with_indices_backward.default", *args, to="back: f32[1, 2, 8, 4]")
    later = p.run("aten.add.Tensor", places, 1, to="later: i64[1, 2, 4, 2]")
    found = p.follow({x: Along(2)}, 4, (back, later))
    assert found.axes[back] == Along(2)
    assert found.private == {places}
    assert p.why() == {("aten.add.Tensor", Why.WHOLE)}


def test_overlapping_windows_need_a_halo():
    p = Play()
    x, w = p.input("x", (1, 2, 8, 4)), p.input("w", (3, 2, 3, 3), Kind.PARAMETER)
    args = (x, w, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1)
    y = p.run("aten.convolution.default", *args, to="y: f32[1, 3, 4, 2]")
    found = p.follow({x: Along(2)}, 4, (y,))
    assert found.axes[y] == Along(2)
    assert found.conditions == (Condition(p.graph.producer(y), Need.HALO),)
    (line,) = found.members.values()
    assert (line.axis.window.kernel, line.axis.window.stride, line.axis.window.before) == (3, 2, 1)

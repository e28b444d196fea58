"""Lowered loops against plain torch, and the bytes that they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import LoweringError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Access, Effects, Source
from neaptide.ir.schedule import Schedule
from neaptide.ir.verify import verify
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from neaptide.runtime.measuring.meter import LiveBytesMeter
from neaptide.symbolic.size_expr import SizeExpr
from support.dispatch_modes import TimelineMeter
from support.hand_graphs import add_loop, looped

HERE = Source("model.py", 7, "y = relu(x @ w)", "block", "forward")
STEP = SizeExpr.const


def whole(*shape):
    """Small whole numbers: sums of their products are exact in any order."""
    return torch.randint(-3, 4, shape).float()


def rows_body(rows):
    """relu(rows @ weight) and its product with the rows."""
    body = GraphBuilder("body", registry())
    x, w = body.input("rows", (rows, 4)), body.input("weight", (4, 4))
    (h,) = body.node("aten.mm.default", x, w, outputs=[f"hidden: f32[{{{rows}}}, 4]"], source=HERE)
    (out,) = body.node("aten.relu_.default", h, outputs=[f"out: f32[{{{rows}}}, 4] @hidden"])
    (flat,) = body.node("aten.view.default", out, [rows * 4], outputs=[f"flat: f32[{{4*{rows}}}] @hidden"])
    (back,) = body.node("aten.view.default", flat, [rows, 4], outputs=[f"back: f32[{{{rows}}}, 4] @hidden"])
    (t,) = body.node("aten.t.default", back, outputs=[f"turned: f32[4, {{{rows}}}] strides(1, 4) @hidden"])
    (grad,) = body.node("aten.mm.default", t, x, outputs=["grad: f32[4, 4]"])
    body.output(grad, out)
    return body


def rows_loop(length, step, body):
    b = GraphBuilder("loop", registry())
    x, w = b.input("x", (length, 4)), b.input("w", (4, 4))
    merges, outputs = [(1, "sum"), (0, "concat", 0)], [f"y: f32[{length}, 4]", "g: f32[4, 4]"]
    y, g = add_loop(b, body, -(-length // step), step, [x, w], outputs, *merges, source=HERE)
    (z,) = b.node("aten.add.Scalar", y, 1, outputs=[f"z: f32[{length}, 4]"])
    b.output(z, g)
    return b.finish()


def run(graph, *inputs):
    program = lower(graph, Schedule.program_order(graph), registry())
    return Executable(program, name="loop").run(list(inputs)), program


@pytest.mark.parametrize(("length", "step"), [(8, 4), (8, 3), (3, 3), (7, 1)])
def test_parts_are_joined_and_summed_in_the_bytes_of_the_body_on_top(length, step):
    """The last part may be shorter."""
    rows = SizeExpr.dim("part") if length % step else STEP(step)
    graph = rows_loop(length, step, rows_body(rows))
    profile = memory_profile(graph, Schedule.program_order(graph))
    x, w = whole(length, 4), whole(4, 4)
    program = lower(graph, Schedule.program_order(graph), registry())
    with TimelineMeter([x, w]) as meter:
        z, g = Executable(program, name="loop").run([x, w])
        live_bytes = meter.live_bytes
    y = (x @ w).relu()
    torch.testing.assert_close(z, y + 1)
    torch.testing.assert_close(g, y.t() @ x)
    assert ("min(" in program.source) == bool(length % step)
    assert meter.peak_bytes == profile.peak_with_workspace_bytes
    assert meter.timeline[-1] == ("aten.add.Scalar", profile.bytes_at[-1])
    assert live_bytes == profile.persistent_bytes + z.nbytes + g.nbytes


def nested_graph():
    """Heads (axis 1) inside rows (axis 0): each row block walks over the columns of w and sums over row halves."""
    inner = GraphBuilder("inner", registry())
    a, b = inner.input("a", (3, 4)), inner.input("b", (4, 2))
    (c,) = inner.node("aten.mm.default", a, b, outputs=["c: f32[3, 2]"])
    (s,) = inner.node("aten.sum.default", c, outputs=["s: f32[]"])
    inner.output(c, s)

    outer = GraphBuilder("outer", registry())
    a, b = outer.input("a", (3, 4)), outer.input("b", (4, 6))
    outputs, merges = ["joined: f32[3, 6] strides(1, 3)", "total: f32[]"], [(0, "concat", 1), (1, "sum")]
    joined, total = add_loop(outer, inner, 3, 2, [a, b], outputs, *merges, at=1, axis=1)
    (r,) = outer.node("aten.relu.default", joined, outputs=["r: f32[3, 6] strides(1, 3)"])
    outer.output(r, total)

    outputs = ["r: f32[6, 6]", "total: f32[]"]
    return looped(outer, 2, 3, outputs, (0, "concat", 0), (1, "sum"), a=(6, 4), b=(4, 6))


def test_nested_loops():
    graph = nested_graph()
    a, b = whole(6, 4), whole(4, 6)
    (r, total), program = run(graph, a, b)
    torch.testing.assert_close(r, (a @ b).relu())
    torch.testing.assert_close(total, (a @ b).sum())
    assert program.source.count("def ") == 3
    profile = memory_profile(graph, Schedule.program_order(graph))
    executable = Executable(program, name="nested")
    with LiveBytesMeter([a, b]) as meter:
        executable.run([a, b])
    assert meter.peak_bytes == profile.peak_with_workspace_bytes


def test_lines_of_a_body_know_their_own_node():
    graph = rows_loop(8, 4, rows_body(STEP(4)))
    program = lower(graph, Schedule.program_order(graph), registry())
    line = next(n for n, text in enumerate(program.source.splitlines(), 1) if "hidden = " in text)
    assert program.line_steps[line - 1] is None
    node = program.node_at(line)
    assert node is not None
    assert node.op == "aten.mm.default"


def test_stand_in_inside_a_body_follows_the_length_of_the_part():
    part = SizeExpr.dim("part")
    body = GraphBuilder("body", registry())
    rows = body.input("rows", (part, 3))
    (h,) = body.node("aten.relu.default", rows, outputs=["h: f32[{part}, 3]"])
    (ones,) = body.node("aten.ones_like.default", h, outputs=["ones: f32[{part}, 3]"])
    body.output(ones)
    (y,), _ = run(looped(body, 2, 4, ["y: f32[5, 3]"], x=(5, 3)), whole(5, 3))
    assert torch.equal(y, torch.ones(5, 3))


def test_dimension_that_no_input_tells_is_refused():
    body = GraphBuilder("body", registry())
    rows = body.input("rows", (STEP(2), 3))
    (z,) = body.node("aten.new_zeros.default", rows, [SizeExpr.dim("K")], outputs=["z: f32[{K}]"])
    body.output(z)
    with pytest.raises(LoweringError, match="the size K is not a number"):
        run(looped(body, 2, 2, ["y: f32[4]"], x=(4, 3)), whole(4, 3))


def test_a_body_runs_in_its_own_order_with_repetitions():
    graph = rows_loop(8, 3, rows_body(SizeExpr.dim("part")))
    body = graph.nodes[0].regions[0].body
    ops = [node.op for node in body.nodes]
    # The hidden rows are made again, with what is written to them, before the gradient reads them.
    order = [0, 1, 2, 0, 1, *range(3, len(ops))]
    assert ops[:3] == ["aten.mm.default", "aten.relu_.default", "neaptide.put"]
    schedule = Schedule(Schedule.program_order(graph).steps, {0: Schedule.from_nodes(body, order)})
    x, w = whole(8, 4), whole(4, 4)
    program = lower(graph, schedule, registry())
    with LiveBytesMeter([x, w]) as meter:
        z, g = Executable(program, name="again").run([x, w])
    y = (x @ w).relu()
    torch.testing.assert_close(z, y + 1)
    torch.testing.assert_close(g, y.t() @ x)
    assert program.source.count("# again") == 2
    assert meter.peak_bytes == memory_profile(graph, schedule).peak_with_workspace_bytes


def gradients_graph():
    """Two gradients, each as large as all else: each is added up where it is made."""
    part = SizeExpr.dim("part")
    body = GraphBuilder("body", registry())
    x, w = body.input("x", (part, 30)), body.input("w", (30, 30))
    (h,) = body.node("aten.mm.default", x, w, outputs=["h: f32[{part}, 30]"])
    (xt,) = body.node("aten.t.default", x, outputs=["xt: f32[30, {part}] strides(1, 30) @x"])
    (first,) = body.node("aten.mm.default", xt, h, outputs=["first: f32[30, 30]"])
    (ht,) = body.node("aten.t.default", h, outputs=["ht: f32[30, {part}] strides(1, 30) @h"])
    (second,) = body.node("aten.mm.default", ht, x, outputs=["second: f32[30, 30]"])
    body.output(first, second)
    outputs = ["g1: f32[30, 30]", "g2: f32[30, 30]"]
    return looped(body, 3, 2, outputs, (0, "sum"), (1, "sum"), x=(5, 30), w=(30, 30))


def test_a_gradient_is_added_where_it_is_made_and_no_zeros_are_written():
    graph = gradients_graph()
    x, w = whole(5, 30), whole(30, 30)
    with LiveBytesMeter([x, w]) as meter:
        (first, second), program = run(graph, x, w)
    torch.testing.assert_close(first, x.t() @ (x @ w))
    torch.testing.assert_close(second, (x @ w).t() @ x)
    matrix, rows = 30 * 30 * 4, 2 * 30 * 4
    # Inputs, both sums, and one part of a sum beside the rows of a part: not two.
    assert meter.peak_bytes == x.nbytes + matrix + 2 * matrix + matrix + rows
    assert meter.peak_bytes == memory_profile(graph, Schedule.program_order(graph)).peak_with_workspace_bytes
    assert "zero_" not in program.source


def test_a_sum_that_the_body_adds_to_twice_begins_at_zero():
    graph = gradients_graph()
    loop = graph.nodes[0].regions[0]
    body = loop.body
    add = next(node for node in body.nodes if node.op == "neaptide.add")
    written = add.effects.writes[0].storage
    again = replace(
        add,
        id=len(body.nodes),
        effects=Effects(
            tuple(Access(a.storage, a.version + (a.storage == written)) for a in add.effects.reads),
            (Access(written, 2),),
        ),
    )
    doubled = replace(loop, body=replace(body, nodes=(*body.nodes, again)))
    graph = replace(graph, nodes=(replace(graph.nodes[0], regions=(doubled,)),))
    verify(graph)
    x, w = whole(5, 30), whole(30, 30)
    (first, _), program = run(graph, x, w)
    torch.testing.assert_close(first, 2 * (x.t() @ (x @ w)))
    assert program.source.count(".zero_()") == 1


def test_a_body_adds_to_a_gradient_that_is_there_before():
    body = GraphBuilder("body", registry())
    into, part = body.input("into", (4,)), body.input("part", (SizeExpr.dim("part"), 4))
    (s,) = body.node("aten.sum.dim_IntList", part, [0], outputs=["s: f32[4]"])
    body.node("aten.add_.Tensor", into, s, outputs=["after: f32[4] @into"])
    b = GraphBuilder("grad", registry())
    grad, x = b.input("grad", (4,)), b.input("x", (7, 4))
    add_loop(b, body, 4, 2, [grad, x], [], at=1)
    (z,) = b.node("aten.add.Scalar", grad, 1, outputs=["z: f32[4]"])
    b.output(z)
    graph = b.finish()
    assert graph.nodes[0].effects.writes
    before, x = whole(4), whole(7, 4)
    expected = before + x.sum(0) + 1
    (z,), _ = run(graph, before, x)
    torch.testing.assert_close(z, expected)
    check_schedule(graph, Schedule.program_order(graph), registry())


@pytest.mark.parametrize(("length", "step"), [(8, 4), (7, 3), (5, 1)])
def test_windows_that_overlap_are_handed_over_with_their_halo(length, step):
    part = SizeExpr.dim("part")
    body = GraphBuilder("body", registry())
    signal = body.input("signal", (1, 2, part + 2))
    weight = body.input("weight", (3, 2, 3))
    (out,) = body.node(
        "aten.convolution.default",
        *(signal, weight, None, [1], [0], [1]),
        *(False, [0], 1),
        outputs=["out: f32[1, 3, {part}]"],
    )
    body.output(out)
    x, w = whole(1, 2, length + 2), whole(3, 2, 3)
    trips, windows = -(-length // step), {"axis": 2, "halo": 1, "x": x.shape, "w": w.shape}
    graph = looped(body, trips, step, [f"y: f32[1, 3, {length}]"], (0, "concat", 2), **windows)
    (y,), _ = run(graph, x, w)
    torch.testing.assert_close(y, torch.nn.functional.conv1d(x, w))


def test_a_body_draws_part_by_part_and_the_same_again_in_a_repetition():
    part = SizeExpr.dim("part")
    body = GraphBuilder("body", registry())
    rows = body.input("rows", (part, 4))
    (noise,) = body.node("aten.rand_like.default", rows, outputs=["noise: f32[{part}, 4]"])
    (a,) = body.node("aten.mul.Tensor", rows, noise, outputs=["a: f32[{part}, 4]"])
    (out,) = body.node("aten.add.Tensor", a, noise, outputs=["out: f32[{part}, 4]"])
    body.output(out)
    graph = looped(body, 3, 2, ["y: f32[5, 4]"], x=(5, 4))
    assert graph.nodes[0].effects.rng == "cpu"
    x = whole(5, 4)
    torch.manual_seed(3)
    noise = torch.cat([torch.rand_like(rows) for rows in x.split(2)])
    body = graph.nodes[0].regions[0].body
    again = Schedule.from_nodes(body, [0, 1, 0, 2, 3])
    for bodies in ({}, {0: again}):
        schedule = Schedule(Schedule.program_order(graph).steps, bodies)
        check_schedule(graph, schedule, registry())
        torch.manual_seed(3)
        (y,) = Executable(lower(graph, schedule, registry()), name="drawing").run([x])
        assert torch.equal(y, x * noise + noise)

"""Small graphs and loops written by hand, shared by tests."""

from __future__ import annotations

from neaptide.ir.builder import GraphBuilder
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import MergeMap, Named, Ref, SliceMap, Source
from neaptide.ir.values import Kind
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr


def in_place_graph() -> Graph:
    """A view, a result in place, a host scalar, random numbers, two segments, and every kind of argument and result."""
    b = GraphBuilder("in place")
    x = b.input("x", (4, 8))
    w = b.input("w", (8, 8), kind=Kind.PARAMETER, device="cuda:0")
    here = Source("model file.py", 12, 'h = x @ w  # "here"', "mlp.fc", "forward")
    (h,) = b.node("aten.mm.default", x, w, outputs=["h: f32[4, 8] kind(activation)"], source=here)
    (v,) = b.node("aten.t.default", h, outputs=["v: f32[8, 4] strides(1, 8) @h"])
    b.node("aten.relu_.default", h, outputs=["r: f32[4, 8] @h"], writes=[h], source=Source("a.py", 3))
    b.segment("forward")
    constants = [
        1,
        -2.5,
        float("nan"),
        float("inf"),
        float("-inf"),
        None,
        True,
        's"\n',
        SizeExpr.const(3),
        [],
    ]
    kwargs = {"zero": constants, "dtype": Named("dtype", "float32"), "device": Named("device", "odd name")}
    (d,) = b.node(
        "toy.dropout",
        v,
        1e-05,
        outputs=["d: f32[8, 4] bytes(256)"],
        kwargs=kwargs,
        rng="cuda:0",
        results=(None, Ref(0)),
    )
    (n,) = b.node("aten.item.default", d, outputs=["n: host f64"], host=True, collective="group 1")
    (late,) = b.node("toy.scale", h, n, outputs=["late: f32[4, 8]"], source=Source(phase="backward"))
    b.node("toy.step_", w, late, writes=[w])
    b.segment("backward")
    b.output(late, v)
    return b.finish()


def loop_graph() -> Graph:
    """Rows in parts of 3 of 8 (the last is shorter): a joined result and a sum; with a named dimension, `T`."""
    part, whole, t = SizeExpr.dim("part"), 8, SizeExpr.dim("T")
    body = GraphBuilder("body")
    rows = body.input("rows", (part, t))
    weight = body.input("weight", (t, t), kind=Kind.PARAMETER)
    (hidden,) = body.node("toy.mm", rows, weight, outputs=["hidden: f32[{part}, {T}]"])
    (out,) = body.node("toy.relu_", hidden, outputs=["out: f32[{part}, {T}] @hidden"], writes=[hidden])
    (grad,) = body.node("toy.outer", rows, out, outputs=["grad: f32[{T}, {T}]"])
    body.output(grad, out)

    b = GraphBuilder("loop")
    x = b.input("x", (whole, t))
    w = b.input("w", (t, t), kind=Kind.PARAMETER)
    y, g = b.loop(
        body.finish(),
        3,
        [x, w],
        outputs=["y: f32[8, {T}]", "g: f32[{T}, {T}] kind(gradient)"],
        slices=[SliceMap(0, 0, SizeExpr.const(3))],
        merges=[MergeMap(1, "sum"), MergeMap(0, "concat", 0)],
        source=Source("model.py", 7, "y = relu(x @ w)", "block", "forward"),
    )
    b.node("toy.step_", w, g, writes=[w])
    b.output(y)
    return b.finish()


def add_loop(b, body, trips, step, given, outputs, *merges, at=0, axis=0, halo=0, **options):
    """Results of a loop over a body, of whose inputs one, at a position, is sliced along an axis.

    Merges are the arguments of `MergeMap`; by default the only result is joined along the first axis.
    """
    return b.loop(
        body.finish(),
        trips,
        given,
        outputs=outputs,
        slices=[SliceMap(at, axis, SizeExpr.const(step), halo, halo)],
        merges=[MergeMap(*merge) for merge in merges or ([(0, "concat", 0)] if outputs else [])],
        **options,
    )


def looped(body, trips, step, outputs, *merges, rows=None, axis=0, halo=0, **inputs):
    """A graph that is one such loop; inputs by name with their shapes."""
    b = GraphBuilder("loop", rows or registry())
    given = [b.input(name, shape) for name, shape in inputs.items()]
    b.output(*add_loop(b, body, trips, step, given, outputs, *merges, axis=axis, halo=halo))
    return b.finish()

"""Estimated costs of small graphs, against the roofline by hand."""

from dataclasses import replace

import pytest

from neaptide.cost import roofline
from neaptide.cost.model import HOST_SCALAR_S, EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import SymbolicError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr
from node_costs import node_seconds, node_workspace

DEVICE = get_device("a100-40g")
ESTIMATE = EstimatedCost(DEVICE, registry())


def test_matmul_by_hand():
    b = GraphBuilder("mm", registry())
    x, w = b.input("x", (64, 128)), b.input("w", (128, 256))
    (y,) = b.node("aten.mm.default", x, w, outputs=["y: f32[64, 256]"])
    b.output(y)
    graph = b.finish()
    expected = roofline.seconds(
        DEVICE,
        flops=2 * 64 * 128 * 256,
        bytes_moved=4 * (64 * 128 + 128 * 256 + 64 * 256),
        dtype="float32",
    )
    assert node_seconds(ESTIMATE, graph) == [expected]
    assert node_workspace(ESTIMATE, graph) == {}
    assert ESTIMATE.storage_bytes(graph) == {}
    assert not ESTIMATE.is_measured
    assert "a100" in ESTIMATE.describe()


def test_views_run_nothing_and_copies_of_views_do():
    b = GraphBuilder("views", registry())
    x = b.input("x", (512, 1024))
    (v,) = b.node("aten.t.default", x, outputs=["v: f32[1024, 512] strides(1, 1024) @x"])
    (c,) = b.node("aten.reshape.default", v, [512 * 1024], outputs=["c: f32[524288]"])
    b.output(c)
    view_s, copy_s = node_seconds(ESTIMATE, b.finish())
    assert view_s == 0
    assert copy_s > DEVICE.launch_s


def test_numbers_of_python_cost_little():
    b = GraphBuilder("numbers", registry())
    n = b.scalar("n")
    (m,) = b.node("host.neg", n, outputs=["m: host f64"])
    b.output(m)
    assert node_seconds(ESTIMATE, b.finish()) == [HOST_SCALAR_S]


def test_unknown_operation_moves_its_tensors_and_has_no_workspace():
    b = GraphBuilder("unknown")
    x = b.input("x", (1024, 1024))
    (y,) = b.node("toy.mystery", x, outputs=["y: f32[1024, 1024]"])
    b.output(y)
    graph = b.finish()
    expected = roofline.seconds(DEVICE, flops=0, bytes_moved=8 * 2**20, dtype="float32")
    assert node_seconds(ESTIMATE, graph) == [expected]
    assert node_workspace(ESTIMATE, graph) == {}


def test_workspace_by_formula():
    rows = OpRegistry([OpSpec("toy.scratchy", workspace=lambda call: call.output().nbytes * 3)])
    b = GraphBuilder("scratch", rows)
    x = b.input("x", (10,))
    (y,) = b.node("toy.scratchy", x, outputs=["y: f32[10]"])
    b.output(y)
    assert node_workspace(EstimatedCost(DEVICE, rows), b.finish()) == {0: 120}


def test_symbolic_sizes_need_a_binding():
    b = GraphBuilder("dynamic", registry())
    x = b.input("x", (SizeExpr.dim("B"), 1024))
    (y,) = b.node("aten.relu.default", x, outputs=["y: f32[{B}, 1024]"])
    b.output(y)
    graph = b.finish()
    with pytest.raises(SymbolicError):
        node_seconds(ESTIMATE, graph)
    small, large = (
        node_seconds(EstimatedCost(DEVICE, registry(), {"B": n}), graph)[0] for n in (1000, 100_000)
    )
    assert small < large


def test_loop_costs_its_trips_and_the_last_one_is_shorter():
    rows = OpRegistry([OpSpec("toy.work", workspace=lambda call: call.output().nbytes)])
    part = SizeExpr.dim("part")
    body = GraphBuilder("body", rows)
    p = body.input("p", (part, 1000))
    (q,) = body.node("toy.work", p, outputs=["q: f32[{part}, 1000]"])
    body.output(q)
    b = GraphBuilder("loop", rows)
    x = b.input("x", (8, 1000))
    (y,) = b.loop(
        body.finish(),
        3,
        [x],
        outputs=["y: f32[8, 1000]"],
        slices=[SliceMap(0, 0, SizeExpr.const(3))],
        merges=[MergeMap(0, "concat", 0)],
    )
    b.output(y)
    graph = b.finish()

    def trip_s(rows: int) -> float:
        return roofline.seconds(DEVICE, flops=0, bytes_moved=rows * 8000, dtype="float32")

    estimate = EstimatedCost(DEVICE, rows)
    assert node_seconds(estimate, graph) == [
        pytest.approx(2 * (2 * trip_s(3) + trip_s(2)))
    ]  # work, and its result put in place
    # The part's result and as much workspace; the part itself is the caller's.
    assert node_workspace(estimate, graph) == {0: 2 * 3 * 4000}


def test_estimates_add_fresh_memory_for_large_results():
    b = GraphBuilder("large", registry())
    x = b.input("x", (1 << 21,))
    (y,) = b.node("aten.relu.default", x, outputs=[f"y: f32[{1 << 21}]"])
    (z,) = b.node("aten.relu_.default", y, outputs=[f"z: f32[{1 << 21}] @y"])
    b.output(z)
    graph = b.finish()
    device = replace(get_device("a100-40g"), fresh_s_per_byte=1.0, fresh_from_bytes=1 << 23)
    plain, fresh = (EstimatedCost(d, registry()) for d in (get_device("a100-40g"), device))
    more = [a - b for a, b in zip(node_seconds(fresh, graph), node_seconds(plain, graph), strict=True)]
    assert more == pytest.approx([1 << 23, 0.0])

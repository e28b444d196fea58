"""The roofline with utilisation, its laws, and estimated costs of small graphs by it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.node_costs import node_seconds, node_workspace
from neaptide.cost.devices import Device, MemorySpace
from neaptide.cost.model import HOST_SCALAR_S, EstimatedCost, roofline_seconds
from neaptide.cost.presets import PRESETS, get_device
from neaptide.errors import SymbolicError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr
from support.hand_graphs import looped
from support.together import together

DEVICE = get_device("a100-40g")
ESTIMATE = EstimatedCost(DEVICE, registry())


def test_matmul_by_hand():
    b = GraphBuilder("mm", registry())
    x, w = b.input("x", (64, 128)), b.input("w", (128, 256))
    (y,) = b.node("aten.mm.default", x, w, outputs=["y: f32[64, 256]"])
    b.output(y)
    graph = b.finish()
    expected = roofline_seconds(
        DEVICE,
        flops=2 * 64 * 128 * 256,
        bytes_moved=4 * (64 * 128 + 128 * 256 + 64 * 256),
        dtype="float32",
    )
    assert node_seconds(ESTIMATE, graph) == [expected]
    assert node_workspace(ESTIMATE, graph) == {}
    assert ESTIMATE.storage_bytes(graph) == {}
    assert not ESTIMATE.is_measured


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
    expected = roofline_seconds(DEVICE, flops=0, bytes_moved=8 * 2**20, dtype="float32")
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
    graph = looped(body, 3, 3, ["y: f32[8, 1000]"], rows=rows, x=(8, 1000))

    def trip_s(rows: int) -> float:
        return roofline_seconds(DEVICE, flops=0, bytes_moved=rows * 8000, dtype="float32")

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


TINY = Device(
    name="tiny",
    kind="cpu",
    spaces=(MemorySpace("host", 1000, 10.0, 64),),
    flops_per_s={"float32": 100.0, "bfloat16": 200.0},
    launch_s=0.5,
    half_flops=50.0,
    half_bytes=20.0,
    links=(),
    source="made up",
)
WORK = st.floats(min_value=0, max_value=1e18)
# Small enough that the cost of one launch is not lost to rounding.
MODEST_WORK = st.floats(min_value=0, max_value=1e12)
FALLING = replace(TINY, name="falling", fall=0.25)
DEVICES = st.sampled_from([*PRESETS.values(), TINY, FALLING])


@together(
    ("flops", "nbytes", "dtype", "expected"),
    [
        (100, 0, "float32", 0.5 + (100 + 50) / 100),
        (100, 0, "bfloat16", 0.5 + (100 + 2 * 50) / 200),  # the half-work grows with the rate
        (100, 40, "float32", 0.5 + max(1.5, (40 + 20) / 10)),
        (0, 0, "float32", 0.5),
    ],
)
def test_hand_computed_times(flops, nbytes, dtype, expected):
    assert roofline_seconds(TINY, flops=flops, bytes_moved=nbytes, dtype=dtype) == pytest.approx(expected)


@together("fall", [1.0, 0.5, 0.25])
def test_a_sixteenth_of_half_work_loses_as_the_fall_says(fall):
    device = replace(TINY, fall=fall)
    span = roofline_seconds(device, flops=50.0 / 16, bytes_moved=0, dtype="float32") - device.launch_s
    assert span == pytest.approx(50.0 / 16 * (1 + 16**fall) / 100)


@given(DEVICES, WORK, WORK, WORK, WORK, st.sampled_from(["float32", "bfloat16"]))
def test_time_is_monotone_in_work(device, flops, more_flops, nbytes, more_bytes, dtype):
    less, more = (
        roofline_seconds(device, flops=f, bytes_moved=n, dtype=dtype)
        for f, n in ((flops, nbytes), (flops + more_flops, nbytes + more_bytes))
    )
    assert less <= more


@given(DEVICES, MODEST_WORK, MODEST_WORK, st.integers(1, 64), st.integers(1, 64))
def test_splitting_never_makes_an_operator_faster(device, flops, nbytes, few, extra):
    whole, split = (
        parts * roofline_seconds(device, flops=flops / parts, bytes_moved=nbytes / parts, dtype="float32")
        for parts in (few, few + extra)
    )
    assert whole < split

"""Programs whose loops take storages to the host in each trip: the same bits, and exactly the predicted bytes."""

from __future__ import annotations

from itertools import pairwise

import torch

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.copy_engines.copy_engine import SlowMemory
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.schedule import Offload, Schedule
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from neaptide.runtime.measuring.meter import LiveBytesMeter
from neaptide.symbolic.size_expr import SizeExpr
from support.hand_graphs import add_loop
from transform.fission_play import random_inputs

FAST = SlowMemory(bytes_per_s=2e9)


def with_all_idle(graph):
    """Program order with every storage of a graph and of the bodies in it on the host while two steps do not touch it."""
    bodies = {node.id: with_all_idle(node.regions[0].body) for node in graph.nodes if node.regions}
    schedule = Schedule.program_order(graph, bodies)
    offloads = []
    for storage in sorted(set(range(len(graph.storages))) - set(graph.input_storages())):
        uses = [
            node.id
            for node in graph.nodes
            if storage in {graph.values[v].storage for v in (*node.inputs, *node.outputs)}
        ]
        for last, then in pairwise(uses):
            if then > last + 2:
                offloads.append(Offload(storage, 0, last, last, then - 1, then))
                try:
                    check_schedule(graph, schedule.with_offloads(offloads), registry())
                except VerifyError:
                    offloads.pop()
    return schedule.with_offloads(offloads)


def run(graph, schedule, inputs):
    """Outputs and operands after a run; bytes on both sides are those predicted."""
    copies = [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]
    tensors = [item for item in copies if isinstance(item, torch.Tensor)]
    program = Executable(lower(graph, schedule, registry(), slow=FAST), name="in parts")
    with LiveBytesMeter(tensors) as meter:
        outputs = program.run(list(copies))
    predicted = memory_profile(graph, schedule)
    assert meter.peak_bytes == predicted.peak_with_workspace_bytes
    if schedule.has_transfers:
        pool = program.program.names["host"]
        assert (pool.peak_bytes, pool.live_bytes) == (predicted.peak_host_bytes, 0)
    return [*outputs, *tensors]


def wide_rows(rows=7, wide=64):
    """Rows in parts of 3, 3 and 1, with a wide value that is idle inside; and a value that is idle across the loop."""
    body = GraphBuilder("body", registry())
    part = SizeExpr.dim("part")
    x, w = body.input("x", (part, 4)), body.input("w", (4, wide))
    (early,) = body.node("aten.mm.default", x, w, outputs=[f"early: f32[{{part}}, {wide}]"])
    (small,) = body.node("aten.relu.default", x, outputs=["small: f32[{part}, 4]"])
    for number in range(3):
        (small,) = body.node("aten.exp.default", small, outputs=[f"s{number}: f32[{{part}}, 4]"])
    (late,) = body.node("aten.mm.default", small, w, outputs=[f"late: f32[{{part}}, {wide}]"])
    (out,) = body.node("aten.add.Tensor", early, late, outputs=[f"out: f32[{{part}}, {wide}]"])
    body.output(out)
    b = GraphBuilder("rows", registry())
    x, w = b.input("x", (rows, 4)), b.input("w", (4, wide))
    (first,) = b.node("aten.mm.default", x, w, outputs=[f"first: f32[{rows}, {wide}]"])
    (y,) = add_loop(b, body, -(-rows // 3), 3, [x, w], [f"y: f32[{rows}, {wide}]"])
    (z,) = b.node("aten.exp.default", y, outputs=[f"z: f32[{rows}, {wide}]"])
    (end,) = b.node("aten.add.Tensor", z, first, outputs=[f"end: f32[{rows}, {wide}]"])
    b.output(end)
    return b.finish()


def test_a_body_stores_and_loads_in_each_trip_and_shares_a_pool_with_an_offload_across_it():
    graph = wide_rows()
    inside = with_all_idle(graph)
    assert len(inside.bodies[1].offloads()) == 1
    assert lower(graph, inside, registry(), slow=FAST).source.count("host.store(early)") == 1
    (first,) = graph.created_storages(graph.nodes[0])
    across = Schedule.program_order(graph, inside.bodies).with_offloads([Offload(first, 0, 0, 0, 2, 3)])
    check_schedule(graph, across, registry())
    assert memory_profile(graph, across).host_bytes_at == (4 * 7 * 64, 4 * (7 + 3) * 64, 4 * 7 * 64, 0)
    before, inputs = Schedule.program_order(graph), random_inputs(graph)
    assert memory_profile(graph, inside).peak_bytes < memory_profile(graph, before).peak_bytes
    expected = run(graph, before, inputs)
    for schedule in (inside, across):
        found = run(graph, schedule, inputs)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))

"""The search takes storages to the host in each trip of a loop where its body has no room for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.budget import Budget
from neaptide.cost.devices import Link
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.body_copies import Links
from neaptide.planner.judge_plan import judge_program, problem_of
from neaptide.planner.loop_bodies import BodyPlanner
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.plan_graph import GraphAsk
from neaptide.planner.pricing import Pricing
from neaptide.plans import Plan
from neaptide.report.plan_text import plan_text
from neaptide.schedule.timeline import simulate_timeline
from neaptide.symbolic.size_expr import SizeExpr

ROWS, PART, WIDE = 64, 16, 64
EARLY_BYTES = 4 * PART * WIDE
LINKS = Links(Link("device", "host", 1e15, 0.0), Link("host", "device", 1e15, 0.0))


def idle_in_each_trip():
    """A wide value that is idle in each trip while two others, as wide, are there."""
    body = GraphBuilder("body", registry())
    part = SizeExpr.dim("part")
    x, w, k = body.input("x", (part, 4)), body.input("w", (4, WIDE)), body.input("k", (WIDE, 4))
    (early,) = body.node("aten.mm.default", x, w, outputs=[f"early: f32[{{part}}, {WIDE}]"])
    (small,) = body.node("aten.mm.default", early, k, outputs=["small: f32[{part}, 4]"])
    (wide,) = body.node("aten.mm.default", small, w, outputs=[f"wide: f32[{{part}}, {WIDE}]"])
    (wider,) = body.node("aten.exp.default", wide, outputs=[f"wider: f32[{{part}}, {WIDE}]"])
    (less,) = body.node("aten.mm.default", wider, k, outputs=["less: f32[{part}, 4]"])
    (out,) = body.node("aten.addmm.default", less, early, k, outputs=["out: f32[{part}, 4]"])
    body.output(out)
    b = GraphBuilder("rows", registry())
    x, w, k = b.input("x", (ROWS, 4)), b.input("w", (4, WIDE)), b.input("k", (WIDE, 4))
    (y,) = b.loop(
        body.finish(),
        ROWS // PART,
        [x, w, k],
        outputs=[f"y: f32[{ROWS}, 4]"],
        slices=[SliceMap(0, 0, SizeExpr.const(PART))],
        merges=[MergeMap(0, "concat", 0)],
    )
    (z,) = b.node("aten.relu.default", y, outputs=[f"z: f32[{ROWS}, 4]"])
    b.output(z)
    return b.finish()


def planned(graph, budget, nbytes=2**20, *, atomic=False, links=LINKS):
    pricing = Pricing(EstimatedCost(get_device("a100-80g"), registry()), registry(), links=links)
    host = HostSpace(nbytes, *LINKS)
    asked = GraphAsk(budget, host=host, atomic=atomic)
    return pricing, BodyPlanner(pricing, Limits(work=100)).around(graph, asked)


def peak_of(graph):
    return memory_profile(graph, Schedule.program_order(graph)).peak_with_workspace_bytes


@pytest.mark.parametrize("budget", [Budget(peak_of(idle_in_each_trip()) - EARLY_BYTES), Budget("min", "+0%")])
def test_a_body_without_room_stores_in_each_trip(budget):
    graph = idle_in_each_trip()
    pricing, found = planned(graph, budget)
    program = found.program
    (order,) = program.bodies
    assert len(order.stays) == 1
    assert not program.stays
    made = program.predictions
    # The lowest peak is looked for up to a few percent.
    assert made.peak_with_workspace_bytes <= peak_of(graph) - EARLY_BYTES * (0.9 if budget.is_min else 1)
    assert made.host_bytes == EARLY_BYTES
    assert len(order.sequence) == len(set(order.sequence))
    # The timeline plays all trips.
    step = pricing.problem(graph, found.schedule.bodies)
    assert made.seconds == pytest.approx(simulate_timeline(step, found.schedule, *LINKS).seconds)
    read = Plan.from_json(Plan((program,)).to_json()).programs[0]
    judged = problem_of(read, graph, registry())
    assert judge_program(read, graph, judged, registry()) == found.schedule
    assert "1 storage on the host meanwhile" in plan_text(Plan((program,)))


@pytest.mark.parametrize(
    "change",
    [{"nbytes": EARLY_BYTES - 1}, {"atomic": True}, {"links": None}],
    ids=["too little room", "an atomic step", "links that are not known"],
)
def test_a_body_that_may_not_store_makes_again(change):
    graph = idle_in_each_trip()
    _, found = planned(graph, Budget(peak_of(graph) - EARLY_BYTES), **change)
    (order,) = found.program.bodies
    assert not order.stays
    assert len(order.sequence) > len(set(order.sequence))
    assert found.program.predictions.host_bytes == 0


def test_copies_of_all_trips_are_weighed_against_making_again():
    """A latency that is short beside all trips together, and long beside each of them."""
    graph = idle_in_each_trip()
    budget = Budget(peak_of(graph) - EARLY_BYTES)
    _, again = planned(graph, budget, nbytes=1)
    seconds = again.program.predictions.seconds
    slow = Links(*(replace(link, latency_s=seconds / 3) for link in LINKS))
    _, found = planned(graph, budget, links=slow)
    assert not found.program.bodies[0].stays
    assert found.program.predictions.seconds == pytest.approx(seconds)

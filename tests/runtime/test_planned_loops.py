"""Steps with a loop under a budget, in an arena, and with eviction."""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import nn

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.loops import NO_BODIES
from neaptide.analysis.profile_bytes import loop_workspaces
from neaptide.budget import Budget
from neaptide.cost.cache import OpCostCache
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ir.schedule import Schedule
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.graphs.graph_search import DEFAULT_STRATEGY, GraphSearch
from neaptide.planner.graphs.plan_graph import GraphAsk, plan_graph
from neaptide.planner.prices import Prices
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.runtime.arena.out_probe import probe_outs
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.arena.planning import plan_arena
from neaptide.runtime.arena.tensors_by_shape import Arena
from neaptide.runtime.calls.executor import Executable
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from support.catalogue import graph_of
from transform.fission_play import along, assert_close, random_inputs, run_measured, split, touching

DEVICE = get_device("a100-80g")
ROWS = 70


def deep_step():
    """A step over 70 rows through six layers, so that a body has activations to recompute."""
    layers = [layer for _ in range(6) for layer in (nn.Linear(8, 8), nn.GELU())]
    model = nn.Sequential(*layers, nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        x, y = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, reduction="sum") / ROWS
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(ROWS, 8), torch.randint(0, 3, (ROWS,)))


@cache
def graphs(parts=3):
    """As captured, and with forward and backward in parts; 70 rows in 3 parts leave a shorter last one."""
    graph = graph_of(deep_step)
    rewrite = split(graph, touching(graph, along(graph, ROWS)), ROWS, parts)
    return graph, replay(graph, registry(), [rewrite], RULES).graph


def test_a_loop_runs_in_an_arena(tmp_path):
    graph, parted = graphs()
    schedule = Schedule.program_order(parted)
    outs = probe_outs(parted, registry(), cache=OpCostCache(tmp_path / "costs"))
    prices = Prices((1.0,) * len(parted.nodes), {}, {})
    plan = plan_arena(parted, schedule, registry(), prices, outs, DEVICE, ArenaOptions(copies="all"))
    program = lower(parted, schedule, registry(), places=plan.places)
    arena = Arena(plan.device, plan.report.arena_bytes, plan.alignment)
    executable = Executable(program, name="placed", places=arena.tensors(program))
    inputs = random_inputs(graph, indices_below=3)
    expected = run_measured(graph, inputs)
    for _ in range(2):
        arena.block.fill_(0xFF)
        copies = [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]
        outputs = executable.run(list(copies))
        assert_close([*outputs, *(c for c in copies if isinstance(c, torch.Tensor))], expected)


def test_what_a_body_looks_at_beyond_its_operands_has_no_place_in_an_arena(tmp_path):
    part = SizeExpr.dim("part")
    body = GraphBuilder("body", registry())
    rows, whole = body.input("rows", (part, 4)), body.input("whole", (4, 4))
    (seen,) = body.node(
        "aten.as_strided.default", whole, [4, 4], [4, 1], 0, outputs=["seen: f32[4, 4] @whole"]
    )
    (out,) = body.node("aten.mm.default", rows, seen, outputs=["out: f32[{part}, 4]"])
    body.output(out)
    b = GraphBuilder("strided", registry())
    x, w = b.input("x", (5, 4)), b.input("w", (4, 4))
    (a,) = b.node("aten.exp.default", x, outputs=["a: f32[5, 4]"])
    (h,) = b.node("aten.exp.default", w, outputs=["h: f32[4, 4]"])
    (y,) = b.loop(
        body.finish(),
        3,
        [a, h],
        outputs=["y: f32[5, 4]"],
        slices=[SliceMap(0, 0, SizeExpr.const(2))],
        merges=[MergeMap(0, "concat", 0)],
    )
    (z,) = b.node("aten.relu.default", y, outputs=["z: f32[5, 4]"])
    b.output(z)
    graph = b.finish()
    schedule = Schedule.program_order(graph)
    outs = probe_outs(graph, registry(), cache=OpCostCache(tmp_path / "costs"))
    prices = Prices((1.0,) * len(graph.nodes), {}, {})
    plan = plan_arena(graph, schedule, registry(), prices, outs, DEVICE, ArenaOptions(copies="all"))
    outside = {o.name: o.reason for o in plan.report.outside}
    assert "counts from the start of its storage" in outside["h"]
    program = lower(graph, schedule, registry(), places=plan.places)
    arena = Arena(plan.device, plan.report.arena_bytes, plan.alignment)
    inputs = random_inputs(graph)
    copies = [item.clone() for item in inputs]
    outputs = Executable(program, name="placed", places=arena.tensors(program)).run(copies)
    assert_close(outputs, run_measured(graph, inputs)[:1])


def searched(graph, budget, binding):
    """The order that the inner search finds for a body, whose sizes are those of a full part."""
    pricing = Pricing(EstimatedCost(DEVICE, registry(), binding), registry(), binding=binding)
    step = pricing.problem(graph)
    whole = baseline(step).peak_with_workspace_bytes - step.persistent_bytes
    allowed = step.persistent_bytes + int(budget * whole)
    search = GraphSearch(
        step,
        None,
        Budget(peak=allowed),
        allowed,
        Limits(time_s=20),
        DEFAULT_STRATEGY,
        None,
        lambda sequence: check_schedule(graph, Schedule.from_nodes(graph, sequence), registry()),
        None,
    )
    return Schedule.from_nodes(graph, search.run().require().sequence)


def test_a_step_with_a_loop_is_planned_and_runs_as_predicted():
    graph, parted = graphs()
    pricing = Pricing(EstimatedCost(DEVICE, registry()), registry())
    schedule = plan_graph(parted, pricing, GraphAsk(Budget(peak="90%"), limits=Limits(time_s=20))).schedule
    check_schedule(parted, schedule, registry())
    inputs = random_inputs(graph, indices_below=3)
    assert_close(run_measured(parted, inputs, schedule), run_measured(graph, inputs))


def test_the_body_of_a_loop_is_planned_as_a_graph_and_its_plan_runs():
    graph, parted = graphs()
    (number,) = (node.id for node in parted.nodes if node.regions)
    body = parted.nodes[number].regions[0].body
    order = searched(body, 0.75, {"part": 24})
    check_schedule(body, order, registry())
    assert len(order.node_steps()) > len(body.nodes), "something is made again"
    schedule = Schedule(Schedule.program_order(parted).steps, {number: order})
    ours, theirs = (loop_workspaces(parted, bodies=bodies)[number] for bodies in (schedule.bodies, NO_BODIES))
    assert ours <= 0.75 * theirs
    inputs = random_inputs(graph, indices_below=3)
    assert_close(run_measured(parted, inputs, schedule), run_measured(graph, inputs))
    # Seconds and bytes of the loop are those of the order.
    cost = EstimatedCost(DEVICE, registry())
    loop = parted.nodes[number]
    assert cost.seconds(parted, loop, schedule.bodies) > cost.seconds(parted, loop)
    assert cost.workspace_bytes(parted, loop, schedule.bodies) < cost.workspace_bytes(parted, loop)

"""Bodies of loops, and of loops inside them, planned as graphs: bytes of the largest part, seconds of all trips."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.loops import trips
from neaptide.analysis.profile_bytes import loop_workspaces, memory_profile
from neaptide.budget import Budget
from neaptide.cost.devices import Link
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import PlanError, VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.loops.orders import BodyOrder, body_orders, body_schedules
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ir.schedule import Schedule
from neaptide.layout.from_schedule import schedule_buffers
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.bodies.plans import BodyPlanner
from neaptide.planner.check_plan import check_program, problem_of
from neaptide.planner.graphs.plan_graph import GraphAsk
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import Plan
from neaptide.report.plan_text import plan_text
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.offloaded import with_offloads
from neaptide.schedule.timeline import Links, simulate_timeline
from neaptide.symbolic.size_expr import SizeExpr
from support.drawn import examples
from support.together import together
from transform.fission_play import assert_close, random_inputs, run_measured

REGISTRY = registry()
LIMITS = Limits(work=100)
WIDE = 64
LINKS = Links(Link("device", "host", 1e15, 0.0), Link("host", "device", 1e15, 0.0))


def wide_twice(b, rows, x, w, k, between):
    """A wide value used before and after `between`, which is wide itself: making it again saves half of the bytes."""
    (wide,) = b.node("aten.mm.default", x, w, outputs=[f"wide: f32[{rows}, {WIDE}]"])
    (first,) = b.node("aten.mm.default", wide, k, outputs=[f"first: f32[{rows}, 1]"])
    middle = between(first)
    (out,) = b.node("aten.addmm.default", middle, wide, k, outputs=[f"out: f32[{rows}, 1]"])
    return out


def operands(b, rows):
    return b.input("x", (rows, 4)), b.input("w", (4, WIDE)), b.input("k", (WIDE, 1))


def looped(b, name, rows, body, step, inputs, trip_count, width=1):
    (y,) = b.loop(
        body,
        trip_count,
        inputs,
        outputs=[f"{name}: f32[{rows}, {width}]"],
        slices=[SliceMap(0, 0, SizeExpr.const(step))],
        merges=[MergeMap(0, "concat", 0)],
    )
    return y


def inner_body():
    b = GraphBuilder("inner", REGISTRY)
    x, w, k = operands(b, SizeExpr.dim("inner"))

    def wide(first):
        (row,) = b.node("aten.t.default", k, outputs=[f"row: f32[1, {WIDE}] strides(1, 1) @k"])
        (again,) = b.node("aten.mm.default", first, row, outputs=[f"again: f32[{{inner}}, {WIDE}]"])
        (small,) = b.node("aten.mm.default", again, k, outputs=["small: f32[{inner}, 1]"])
        return small

    b.output(wide_twice(b, "{inner}", x, w, k, wide))
    return b.finish()


def outer_body():
    b = GraphBuilder("outer", REGISTRY)
    x, w, k = operands(b, SizeExpr.dim("part"))
    inner = inner_body()

    def parts(first):
        (moved,) = b.node("aten.add.Tensor", x, first, outputs=["moved: f32[{part}, 4]"])
        return looped(b, "y", "{part}", inner, 8, [moved, w, k], 2)

    made = wide_twice(b, "{part}", x, w, k, parts)
    b.output(made)
    return b.finish()


def nested(rows=29):
    """29 rows in parts of 10, 10 and 9, and these in parts of 8 and what is left."""
    b = GraphBuilder("nested", REGISTRY)
    x, w, k = operands(b, rows)
    (y,) = b.node("aten.relu.default", x, outputs=[f"r: f32[{rows}, 4]"])
    z = looped(b, "z", rows, outer_body(), 10, [y, w, k], 3)
    (out,) = b.node("aten.relu.default", z, outputs=[f"out: f32[{rows}, 1]"])
    b.output(out)
    return b.finish()


def single(rows):
    """Rows in parts of 4, with a shorter last part."""
    b = GraphBuilder("single", REGISTRY)
    x, w, k = operands(b, rows)
    z = looped(b, "z", rows, inner_body(), 4, [x, w, k], -(-rows // 4))
    b.output(z)
    return b.finish()


def priced(links=None):
    return Pricing(EstimatedCost(get_device("a100-80g"), REGISTRY), REGISTRY, links=links)


def loop_of(graph):
    return next(node for node in graph.nodes if node.regions)


def by_trips(pricing, graph, node, schedule):
    """Seconds of a loop, a trip after the other."""
    total, loop = 0.0, node.regions[0]
    for count, sizes in trips(graph, node, loop, pricing.binding):
        cost = replace(pricing.cost, binding=sizes)
        for _ in range(count):
            for step in schedule.node_steps():
                part = loop.body.nodes[step.target]
                if part.regions:
                    inside = Pricing(cost, REGISTRY, binding=sizes)
                    total += by_trips(inside, loop.body, part, schedule.bodies[part.id])
                else:
                    total += cost.seconds(loop.body, part)
    return total


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(2, 30))
def test_a_body_within_its_budget_runs_in_parts_of_any_length(rows):
    graph, pricing = single(rows), priced()
    node = loop_of(graph)
    made = BodyPlanner(pricing, LIMITS).bodies(graph, Budget("75%"))
    written = loop_workspaces(graph)[node.id]
    assert pricing.prices(graph, made).workspace[node.id] <= 0.75 * written
    assert len(made[node.id].node_steps()) > len(node.regions[0].body.nodes)
    seconds = pricing.prices(graph, made).seconds[node.id]
    assert seconds == pytest.approx(by_trips(pricing, graph, node, made[node.id]))
    schedule = Schedule.program_order(graph, made)
    check_schedule(graph, schedule, REGISTRY)
    inputs = random_inputs(graph)
    assert_close(run_measured(graph, inputs, schedule), run_measured(graph, inputs))


def test_a_loop_in_a_loop_is_planned_stored_judged_and_run():
    graph, pricing = nested(), priced()
    node = loop_of(graph)
    body = node.regions[0].body
    planner = BodyPlanner(pricing, LIMITS)
    free, least = planner.bodies(graph), planner.bodies(graph, Budget("min"))
    assert not any(step.occurrence for step in free[node.id].node_steps()), "order alone repeats nothing"
    needed = [pricing.prices(graph, bodies).workspace[node.id] for bodies in (least, free)]
    assert needed[0] < needed[1] <= loop_workspaces(graph)[node.id]
    tight = least[node.id]
    seconds = pricing.prices(graph, least).seconds[node.id]
    assert seconds == pytest.approx(by_trips(pricing, graph, node, tight))
    (inner,) = (part for part in body.nodes if part.regions)
    for schedule, within in (
        (tight, body),
        (tight.bodies[inner.id], inner.regions[0].body),
    ):
        assert len(schedule.node_steps()) > len(within.nodes), "both bodies make something again"

    asked = GraphAsk(Budget("min"))
    found = planner.around(graph, asked)
    assert body_schedules(graph, found.program.bodies) == found.schedule.bodies
    assert [order.loops for order in found.program.bodies] == [(node.id,), (node.id, inner.id)]
    program = Plan.from_json(Plan((found.program,)).to_json()).programs[0]
    step = problem_of(program, graph, REGISTRY)
    schedule = check_program(program, graph, step, REGISTRY)
    assert schedule == found.schedule
    inputs = random_inputs(graph)
    assert_close(run_measured(graph, inputs, schedule), run_measured(graph, inputs))
    before = memory_profile(graph, Schedule.program_order(graph)).peak_bytes
    assert program.predictions.peak_bytes < before

    # Every room says the same of the planned body.
    needed = found.schedule.bodies
    assert (
        pricing.problem(graph, needed).workspace[node.id] == pricing.prices(graph, needed).workspace[node.id]
    )
    buffers = schedule_buffers(graph, schedule, workspace=pricing.prices(graph, needed).workspace)
    scratch = [b.nbytes for b in buffers.problem.buffers if b.kind == "workspace"]
    assert scratch == [pricing.prices(graph, needed).workspace[node.id]]


def test_a_graph_takes_what_is_left_where_its_loop_runs():
    """The order of the body alone is above the budget; what the loop runs beside is given up by the body."""
    graph, pricing = nested(), priced()
    node = loop_of(graph)
    planner = BodyPlanner(pricing, LIMITS)
    free = planner.around(graph, GraphAsk(Budget(None))).program
    least = planner.around(graph, GraphAsk(Budget("min"))).program
    peaks = [p.predictions.peak_with_workspace_bytes for p in (least, free)]
    assert peaks[0] < peaks[1]
    allowed = sum(peaks) // 2
    made = planner.around(graph, GraphAsk(Budget(allowed))).program
    assert made.predictions.peak_with_workspace_bytes <= allowed
    assert made.predictions.seconds <= least.predictions.seconds * (1 + 1e-9)
    first, second = (planner.bodies(graph)[node.id] for _ in range(2))
    assert first is second, "bodies that are alike are planned once"


def test_a_body_has_the_room_that_offloads_leave_it():
    """What waits across a loop makes room for it, so nothing is made again in the body."""
    rows, pricing = 64, priced()
    b = GraphBuilder("across", REGISTRY)
    x, w, k = operands(b, rows)

    def in_parts(first):
        (moved,) = b.node("aten.add.Tensor", x, first, outputs=[f"moved: f32[{rows}, 4]"])
        return looped(b, "y", rows, inner_body(), 32, [moved, w, k], 2)

    b.output(wide_twice(b, rows, x, w, k, in_parts))
    graph = b.finish()
    loop = loop_of(graph).id
    step = pricing.problem(graph)
    before = baseline(step)
    # Above everything but the loop.
    budget = before.peak_with_workspace_bytes - 4 * rows * WIDE // 2
    asked = GraphAsk(Budget(budget), host=HostSpace(2**20, *LINKS))
    found = BodyPlanner(pricing, LIMITS).around(graph, asked)
    program = found.program
    (offload,) = program.offloads
    assert offload.gone_after < program.sequence.index(loop) < offload.load_before
    (order,) = program.bodies
    assert len(order.sequence) == len(set(order.sequence))
    assert program.predictions.peak_with_workspace_bytes <= budget
    assert program.predictions.seconds == pytest.approx(before.seconds)
    problem = pricing.problem(graph, found.schedule.bodies)
    again = with_offloads(Evaluator(problem, program.sequence), program.offloads)
    assert again.peak == program.predictions.peak_with_workspace_bytes
    assert again.peak_host_bytes == program.predictions.host_bytes


def edits(found, graph):
    """Programs with bodies that are wrong, what is said of them, and whether only the checker says it."""
    loop = loop_of(graph)
    body, (outer, inner) = loop.regions[0].body, found.bodies
    for wrong, why in (
        (replace(inner, sequence=inner.sequence[1:]), "cannot run|never runs"),
        (replace(inner, sequence=(*inner.sequence, inner.sequence[-1])), "must not be repeated"),
        (replace(inner, loops=(inner.loops[0], 0)), "node 0 in the body of node 1 is no loop"),
    ):
        yield replace(found, bodies=(outer, wrong)), why, False
    yield replace(found, bodies=(inner, outer)), "not ascending", False

    def assuming(name, *path):
        return replace(found, assumed=replace(found.assumed, **{name: ((path, 10**6),)}))

    handed, (made,) = min(body.input_storages()), body.created_storages(body.nodes[0])
    for path in ((loop.id, 10**6), (loop.id,), (0, 0)):
        yield assuming("in_bodies", *path), "in_bodies", False
    for path in ((loop.id, 10**6), (loop.id, handed), (loop.id,)):
        yield assuming("storages_in_bodies", *path), "storages_in_bodies", False
    of_loop = replace(found.assumed, workspace=((loop.id, 4),))
    yield replace(found, assumed=of_loop), "has the loop", False
    yield assuming("storages_in_bodies", loop.id, made), r"predictions\.peak_bytes", True  # it is no scratch
    yield assuming("in_bodies", loop.id, 0), "peak_with_workspace_bytes", True


def test_orders_of_bodies_and_what_they_assume_are_judged_at_the_door():
    graph, pricing = nested(), priced()
    found = BodyPlanner(pricing, LIMITS).around(graph, GraphAsk(Budget("min"))).program
    for edited, why, is_of_check in edits(found, graph):
        if is_of_check:
            step = problem_of(edited, graph, REGISTRY)
            assert step.workspace[loop_of(graph).id] > 10**6
        with pytest.raises(PlanError, match=why):
            check_program(edited, graph, problem_of(edited, graph, REGISTRY), REGISTRY)


def test_orders_that_name_no_body_are_no_schedules():
    graph = nested()
    loop = loop_of(graph).id
    inner = next(node.id for node in loop_of(graph).regions[0].body.nodes if node.regions)
    count = len(loop_of(graph).regions[0].body.nodes[inner].regions[0].body.nodes)
    order = BodyOrder((loop, inner), tuple(range(count)))
    made = body_schedules(graph, (order,))
    assert made[loop].node_steps() == Schedule.program_order(loop_of(graph).regions[0].body).node_steps()
    assert body_orders(made)[1] == order
    for wrong in (BodyOrder((), ()), BodyOrder((-1,), ()), BodyOrder((loop, inner), (count,))):
        with pytest.raises(VerifyError):
            body_schedules(graph, (wrong,))


# -- storages that wait on the host in each trip of a loop


ROWS, PART = 64, 16
EARLY_BYTES = 4 * PART * WIDE


def idle_in_each_trip():
    """A wide value that is idle in each trip while two others, as wide, are there."""
    body = GraphBuilder("body", REGISTRY)
    part = SizeExpr.dim("part")
    x, w, k = body.input("x", (part, 4)), body.input("w", (4, WIDE)), body.input("k", (WIDE, 4))
    (early,) = body.node("aten.mm.default", x, w, outputs=[f"early: f32[{{part}}, {WIDE}]"])
    (small,) = body.node("aten.mm.default", early, k, outputs=["small: f32[{part}, 4]"])
    (wide,) = body.node("aten.mm.default", small, w, outputs=[f"wide: f32[{{part}}, {WIDE}]"])
    (wider,) = body.node("aten.exp.default", wide, outputs=[f"wider: f32[{{part}}, {WIDE}]"])
    (less,) = body.node("aten.mm.default", wider, k, outputs=["less: f32[{part}, 4]"])
    (out,) = body.node("aten.addmm.default", less, early, k, outputs=["out: f32[{part}, 4]"])
    body.output(out)
    b = GraphBuilder("rows", REGISTRY)
    x, w, k = b.input("x", (ROWS, 4)), b.input("w", (4, WIDE)), b.input("k", (WIDE, 4))
    y = looped(b, "y", ROWS, body.finish(), PART, [x, w, k], ROWS // PART, width=4)
    (z,) = b.node("aten.relu.default", y, outputs=[f"z: f32[{ROWS}, 4]"])
    b.output(z)
    return b.finish()


def planned(graph, budget, nbytes=2**20, *, atomic=False, links=LINKS):
    pricing = priced(links)
    asked = GraphAsk(budget, host=HostSpace(nbytes, *LINKS), atomic=atomic)
    return pricing, BodyPlanner(pricing, LIMITS).around(graph, asked)


def peak_of(graph):
    return memory_profile(graph, Schedule.program_order(graph)).peak_with_workspace_bytes


@together("budget", [Budget(peak_of(idle_in_each_trip()) - EARLY_BYTES), Budget("min", "+0%")])
def test_a_body_without_room_stores_in_each_trip(budget):
    graph = idle_in_each_trip()
    pricing, found = planned(graph, budget)
    program = found.program
    (order,) = program.bodies
    assert len(order.offloads) == 1
    assert not program.offloads
    made = program.predictions
    # The lowest peak is looked for up to a few percent.
    assert made.peak_with_workspace_bytes <= peak_of(graph) - EARLY_BYTES * (0.9 if budget.is_min else 1)
    assert made.host_bytes == EARLY_BYTES
    assert len(order.sequence) == len(set(order.sequence))
    # The timeline plays all trips.
    step = pricing.problem(graph, found.schedule.bodies)
    assert made.seconds == pytest.approx(simulate_timeline(step, found.schedule, *LINKS).seconds)
    read = Plan.from_json(Plan((program,)).to_json()).programs[0]
    checked = problem_of(read, graph, REGISTRY)
    assert check_program(read, graph, checked, REGISTRY) == found.schedule
    assert "1 storage on the host meanwhile" in plan_text(Plan((program,)))


@together("change", [{"nbytes": EARLY_BYTES - 1}, {"atomic": True}, {"links": None}])
def test_a_body_that_may_not_store_makes_again(change):
    graph = idle_in_each_trip()
    _, found = planned(graph, Budget(peak_of(graph) - EARLY_BYTES), **change)
    (order,) = found.program.bodies
    assert not order.offloads
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
    assert not found.program.bodies[0].offloads
    assert found.program.predictions.seconds == pytest.approx(seconds)

"""What may be evicted, and what is decided: against exhaustive search, static evaluation, and the example of the paper."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.planner.points.choices.candidates import all_candidates
from neaptide.planner.points.plan import Decisions, point_plan
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.planner.pricing import Pricing
from neaptide.schedule.symbolic.problem import symbolic_problem
from neaptide.symbolic.dims import Dim
from schedule.symbolic.symbolic_graphs import listing_1
from support.symbolic_steps import for_all_shapes
from support.together import together

COST = EstimatedCost(get_device("rtx3090"), registry())
lengths = st.tuples(st.integers(1, 40), st.integers(1, 40)).map(lambda p: dict(zip("BT", p, strict=True)))


def plan_of(graph, sample, least=0):
    return point_plan(graph, COST, range(len(graph.nodes)), sample, least_budget_bytes=least)


STEP = plan_of(for_all_shapes(layers=2), {"B": 2, "T": 3})


@settings(deadline=None)
@given(lengths)
def test_sizes_of_a_shape_are_those_of_the_static_graph(sizes):
    graph = STEP.shaped.graph
    static = with_sizes(graph, sizes)
    problem = Pricing(EstimatedCost(COST.device, registry()), registry()).problem(static)
    found, shaped = STEP.shaped.at(sizes), STEP.shaped.problem_at(sizes)
    assert tuple(found.storage_bytes) == problem.storage_bytes == shaped.storage_bytes
    assert tuple(found.workspace) == problem.workspace == shaped.workspace
    assert shaped.persistent_bytes == problem.persistent_bytes
    assert list(found.repeat_seconds) == pytest.approx(problem.repeat_seconds, rel=1e-12)
    scratch = dict(enumerate(problem.workspace))
    profile = memory_profile(static, Schedule.program_order(static), workspace=scratch)
    assert found.peak_bytes == profile.peak_with_workspace_bytes


def test_the_subgraph_grows_until_all_that_it_reads_is_there():
    graph = for_all_shapes(layers=1)
    shaped = ShapedProgram(graph, COST, range(len(graph.nodes)), {"B": 2, "T": 3})
    ops = [node.op.split(".")[1] for node in graph.nodes]
    dropped = ops.index("native_dropout")
    gaps = [c for c in all_candidates(shaped.units) if c.unit == dropped]
    assert gaps
    # The scores are gone by then, so everything from the queries and keys on is made again.
    made = [ops[n] for n in gaps[0].again if ops[n] != "view"]
    assert made == ["zeros", "bmm", "add", "_softmax", "native_dropout"]
    assert [ops[n] for n in gaps[0].sources] == ["clone", "clone"]


@together("copies, again", [(True, (1, 2, 3)), (False, (2, 3))])
def test_the_example_of_the_paper_grows_to_the_subgraph_that_saves_bytes(copies, again):
    graph = listing_1(copies=copies)
    rows = OpRegistry([OpSpec(op) for op in sorted({node.op for node in graph.nodes})])
    cost, order = EstimatedCost(COST.device, rows), (0, 1, 2, 3, 5, 4)
    shaped = ShapedProgram(graph, cost, order, {"S0": 24, "S1": 2})
    (found,) = (c for c in all_candidates(shaped.units) if c.unit == 3)
    assert (found.start, found.end, found.again, found.sources) == (3, 5, again, ())


def test_a_subgraph_keeps_nothing_alive_so_it_saves_the_bytes_of_its_storages_for_all_shapes():
    units = STEP.shaped.units
    problem = symbolic_problem(STEP.shaped.graph).structure
    position_of = {op: position for position, op in enumerate(units.order)}
    for candidate in STEP.candidates:
        made = {storage for op in candidate.again for storage in problem.ops[op].writes}
        for storage in {s for op in candidate.again for s in problem.ops[op].reads} - made:
            record, last = problem.storages[storage], max(map(position_of.get, problem.accessors[storage]))
            assert record.resident or record.output or last >= candidate.end


@settings(deadline=None)
@given(lengths, st.integers(60, 100))
def test_decisions_are_remembered_by_shape_and_budget(sizes, share):
    decisions = Decisions(STEP)
    budget = STEP.shaped.at(sizes).peak_bytes * share // 100
    first = decisions.of(sizes, budget)
    assert decisions.of(dict(sizes), budget) is first
    assert decisions.of(sizes, budget + 1) is not first
    fresh = Decisions(STEP).of(sizes, budget)
    assert fresh.script.evictions == first.script.evictions
    fits = decisions.of(sizes, STEP.shaped.at(sizes).peak_bytes)
    assert (fits.due, dict(fits.script.actions), fits.script.repeated) == ((), {}, ())


@settings(deadline=None)
@given(lengths, st.integers(60, 100))
def test_what_is_left_out_for_a_range_is_needed_by_no_shape_in_it(sizes, share):
    graph = for_all_shapes(layers=2, highest=40)
    assert graph.dims == (Dim("B", 1, 40), Dim("T", 1, 40))
    least = STEP.shaped.at({"B": 40, "T": 40}).peak_bytes * share // 100
    plan = plan_of(graph, {"B": 1, "T": 1}, least)
    left = {(c.unit, c.start) for c in plan.candidates}
    largest = {"B": 40, "T": 40}
    assert not plan_of(graph, {"B": 1, "T": 1}, plan.shaped.at(largest).peak_bytes).counts.kept
    during = plan.shaped.at(sizes).during
    for candidate in all_candidates(plan.shaped.units):
        if during[candidate.start + 1 : candidate.end].max() > least and candidate.again:
            assert (candidate.unit, candidate.start) in left

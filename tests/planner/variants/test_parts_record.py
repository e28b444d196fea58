"""What a plan keeps of the regions that a search looked at: how many there are, and how low so many parts can go."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from neaptide.budget import Budget
from neaptide.errors import PlanError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.outcome import Limits
from neaptide.planner.plan_graph import GraphAsk, plan_graph
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.looked_at import most_parts, parts_record
from neaptide.planner.variants.met import VariantPlan
from neaptide.planner.variants.settings import SETTINGS
from neaptide.plans import Plan
from neaptide.report.plan_text import plan_text
from neaptide.runtime.steps.capturing import capture
from neaptide.symbolic.size_expr import SizeExpr
from variant_search import PRICING, choices_of_all, graph_of
from wide_rows import rows_step


def plan_of(variant, begun, choices):
    """A variant in program order, as a search would hand it over."""
    before = baseline(PRICING.problem(variant.graph))
    request = GraphAsk(
        Budget("100%"), "program_order", Limits(None, 1), budget_bytes=before.peak_with_workspace_bytes
    )
    made = plan_graph(variant.graph, PRICING, request)
    return VariantPlan("planned", made, variant, before, begun=begun, choices=choices)


@pytest.fixture(scope="module")
def found():
    known = choices_of_all()
    begun = known.begun(graph_of(rows_step))
    choices = known.after(begun)
    return plan_of(known.taken(choices[0], 6), begun, choices), known


def test_a_plan_keeps_to_the_bound_of_as_many_parts_as_it_has(found):
    made, known = found
    record = parts_record(made, made.begun, PRICING, known)
    parts = most_parts(made.variant.graph)
    peak = made.found.program.predictions.peak_with_workspace_bytes
    assert record.most_parts == parts >= 2
    assert record.lower_bound_bytes <= record.most_parts_lower_bound_bytes <= peak
    assert record.regions_left_out == 0


def test_state_that_waits_on_the_host_is_left_out_of_both_bounds(found):
    made, known = found
    usual = parts_record(made, made.begun, PRICING, known)
    step = PRICING.problem(made.variant.graph)
    state = next(storage for storage, nbytes in enumerate(step.state_bytes) if nbytes)
    program = SimpleNamespace(
        stays=[SimpleNamespace(storage=state)], predictions=made.found.program.predictions
    )
    record = parts_record(replace(made, found=SimpleNamespace(program=program)), made.begun, PRICING, known)
    away = sum(step.state_bytes)
    assert record.lower_bound_bytes == usual.lower_bound_bytes - away
    assert record.most_parts_lower_bound_bytes == usual.most_parts_lower_bound_bytes - away


def test_a_plan_file_whose_bounds_contradict_each_other_is_refused(found):
    made, known = found
    record = parts_record(made, made.begun, PRICING, known)
    usual = replace(made.found.program, parts=record)
    plan = Plan((usual,))
    assert Plan.from_json(plan.to_json()).programs[0].parts == record
    for field, value in (("most_parts_lower_bound_bytes", record.lower_bound_bytes - 1), ("most_parts", 1)):
        wrong = Plan((replace(usual, parts=replace(record, **{field: value})),))
        with pytest.raises(PlanError, match=field):
            Plan.from_json(wrong.to_json())


def nested(same_axis):
    """Four parts of rows, each in three parts of rows or of columns."""
    rows, some = SizeExpr.dim("rows"), SizeExpr.dim("some")
    axis = 0 if same_axis else 1
    inner, outer, b = (GraphBuilder(name) for name in ("inner", "outer", "nested"))
    x = inner.input("x", (some, 36) if same_axis else (rows, some))
    inner.output(
        *inner.node(
            "aten.exp.default", x, outputs=["y: f32[{some}, 36]" if same_axis else "y: f32[{rows}, {some}]"]
        )
    )
    for made, body, extent, trips, cut, step in (
        (outer, inner, "{rows}", 3, axis, 12),
        (b, outer, "144", 4, 0, 36),
    ):
        x = made.input("x", (rows if made is outer else 144, 36))
        slices, merges = [SliceMap(0, cut, SizeExpr.const(step))], [MergeMap(0, "concat", cut)]
        made.output(
            *made.loop(
                body.finish(), trips, [x], outputs=[f"y: f32[{extent}, 36]"], slices=slices, merges=merges
            )
        )
    return b.finish()


@pytest.mark.parametrize(("same_axis", "parts"), [(True, 12), (False, 4)])
def test_parts_of_parts_multiply_along_one_axis(same_axis, parts):
    assert most_parts(nested(same_axis)) == parts


def test_regions_beyond_the_most_choices_are_counted_and_the_report_says_how_many():
    w = torch.ones(7, requires_grad=True)

    def step(x):
        w.grad = None
        y = x * w
        for _ in range(6):
            y = torch.stack([y, y.exp()], -1).tanh().sum(-1)
        loss = y.sum()
        loss.backward()
        return loss.detach()

    graph = capture(step, (torch.randn(2, 3, 4, 5, 6, 7),)).steady.graph
    known = choices_of_all()
    begun = known.begun(graph)
    choices = known.after(begun)
    assert len(choices) == SETTINGS.most_choices == 40
    left_out = known.left_out_after(begun)
    assert left_out > 0
    assert known.after(begun) is choices
    usual = plan_of(begun, begun, choices)
    record = parts_record(usual, begun, PRICING, known)
    assert len(record.regions) == 40
    assert record.regions_left_out == left_out
    text = plan_text(Plan((replace(usual.found.program, parts=record),)))
    assert text.count(" long, ") == 40
    assert f"Not looked at: {left_out} more regions with fewer bytes made in parts." in text

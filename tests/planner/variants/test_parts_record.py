"""What a plan keeps of the regions that a search looked at: how many there are, and how low parts can go."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from neaptide.budget import Budget
from neaptide.outcome import Limits
from neaptide.planner.graphs.plan_graph import GraphAsk, plan_graph
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.looked_at import parts_record
from neaptide.planner.variants.met import VariantPlan
from neaptide.planner.variants.settings import SETTINGS
from neaptide.plans import Plan
from neaptide.report.plan_text import plan_text
from neaptide.runtime.steps.capturing import capture
from planner.variants.variant_search import PRICING, choices_of_all
from support.catalogue import graph_of
from support.steps import rows_step


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


def test_a_plan_keeps_to_the_bound(found):
    made, known = found
    record = parts_record(made, made.begun, PRICING, known)
    assert record.lower_bound_bytes <= made.found.program.predictions.peak_with_workspace_bytes
    assert record.regions_left_out == 0
    program = replace(made.found.program, parts=record)
    assert Plan.from_json(Plan((program,)).to_json()).programs[0].parts == record


def test_state_that_waits_on_the_host_is_left_out_of_the_bound(found):
    made, known = found
    usual = parts_record(made, made.begun, PRICING, known)
    step = PRICING.problem(made.variant.graph)
    state = next(storage for storage, nbytes in enumerate(step.state_bytes) if nbytes)
    program = SimpleNamespace(
        offloads=[SimpleNamespace(storage=state)], predictions=made.found.program.predictions
    )
    record = parts_record(replace(made, found=SimpleNamespace(program=program)), made.begun, PRICING, known)
    away = sum(step.state_bytes)
    assert record.lower_bound_bytes == usual.lower_bound_bytes - away


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

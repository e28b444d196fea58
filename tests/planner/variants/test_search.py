"""Plans over variants: within the budget, no worse than the graph as it is, right in bytes, close in numbers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import neaptide
from neaptide import zoo
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget, UsageError
from neaptide.planner.variants.choices import Choice
from neaptide.planner.variants.price import Goal
from neaptide.planner.variants.variant import Variant
from support.catalogue import graph_of
from support.steps import rows_step

LIMITS = {"time_limit_s": None, "work_limit": 400}


@pytest.fixture(scope="module")
def plans():
    step, batch = rows_step()
    budget = neaptide.Budget(
        None, latency=3600.0
    )  # time is no limit here: what it takes depends on the machine
    return {
        numerics: neaptide.plan(step, batch, budget=budget, numerics=numerics, **LIMITS)
        for numerics in ("bitwise", "close")
    }


def test_sums_in_another_order_buy_bytes(plans):
    made = {name: plan.programs[0] for name, plan in plans.items()}
    peaks = {name: program.predictions.peak_with_workspace_bytes for name, program in made.items()}
    assert peaks["close"] < 0.8 * peaks["bitwise"]
    assert "fission" in [rewrite.rule for rewrite in made["close"].rewrites]
    assert {rewrite.rule for rewrite in made["bitwise"].rewrites} <= {"in_place"}  # which keeps the bits


def test_the_plan_runs_as_predicted_and_close_to_eager(plans, tmp_path):
    plans["close"].save(tmp_path / "plan.json")
    report = neaptide.run(rows_step, str(tmp_path / "plan.json"), verify=True)
    assert report.predicted_peak_bytes == report.measured_peak_bytes
    assert max(report.max_abs_diff.values()) < 1e-5


def test_the_first_step_is_split_as_well(plans):
    assert all(program.rewrites for program in plans["close"].programs)


def test_within_bytes_the_graph_is_left_as_it_is_where_that_is_free():
    step, batch = rows_step()
    plan = neaptide.plan(step, batch, budget="100%", numerics="close", **LIMITS)
    assert {rewrite.rule for rewrite in plan.programs[0].rewrites} <= {"in_place"}


def test_a_budget_that_recomputation_cannot_reach_is_reached():
    step, batch = rows_step()
    with pytest.raises(InfeasibleBudget) as refused:
        neaptide.plan(step, batch, budget="30%", time_limit_s=None, work_limit=100)
    assert refused.value.plan is not None
    plan = neaptide.plan(step, batch, budget="30%", numerics="close", **LIMITS)
    made = plan.programs[0].predictions
    assert made.peak_with_workspace_bytes <= 0.3 * made.baseline_peak_with_workspace_bytes


@pytest.mark.slow
def test_results_on_operands_are_looked_for_where_sums_in_products_take_too_long():
    step, batch = zoo.factory("mlp@tiny,batch=4096", device="meta")()
    asked = {"budget": neaptide.Budget(None, latency="+5%"), "device": "rtx3090", **LIMITS}
    made = {
        numerics: neaptide.plan(step, batch, numerics=numerics, **asked).programs[0]
        for numerics in ("bitwise", "close")
    }
    peaks = {name: program.predictions.peak_with_workspace_bytes for name, program in made.items()}
    assert peaks["close"] <= peaks["bitwise"]
    assert [rewrite.rule for rewrite in made["close"].rewrites] == ["in_place"]


def test_micro_batching_is_a_strategy_of_its_own():
    step, batch = rows_step()
    limits = {**LIMITS, "work_limit": 200}
    plan = neaptide.plan(step, batch, budget="min", numerics="close", strategy="micro_batch", **limits)
    assert [rewrite.rule for rewrite in plan.programs[0].rewrites][-1] == "fission"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"strategy": "micro_batch"}, "takes sums in another order"),
        ({"numerics": "close", "atomic": True}, 'atomic and numerics="close" exclude each other'),
        ({"numerics": "nearly"}, "numerics"),
    ],
)
def test_what_excludes_each_other_is_refused(options, why):
    step, batch = rows_step()
    with pytest.raises(UsageError, match=why):
        neaptide.plan(step, batch, budget="60%", **options)


@pytest.mark.parametrize(
    ("budget", "goal"),
    [
        (Budget("50%"), Goal(500, None)),
        (Budget("min"), Goal(1000, float("inf"))),
        (Budget(None), Goal(1000, 2.0)),
        (Budget(None, latency="+10%"), Goal(1000, 2.2)),
        (Budget("min", latency=3.0), Goal(1000, 3.0)),
    ],
)
def test_a_budget_asks_for_bytes_or_for_time(budget, goal):
    made = Goal.of(budget, budget.resolve(1000), 2.0)
    assert made.allowed == goal.allowed
    assert made.longest == (None if goal.longest is None else pytest.approx(goal.longest))


def test_what_is_beyond_the_limit_ranks_first():
    in_time = Goal(1000, 2.0)
    assert in_time.rank(900, 2.0) < in_time.rank(100, 2.1)
    assert in_time.rank(800, 2.0) < in_time.rank(900, 1.0)
    in_bytes = Goal(1000, None)
    assert in_bytes.rank(1000, 5.0) < in_bytes.rank(1001, 1.0)
    assert in_bytes.rank(1000, 1.0) < in_bytes.rank(900, 1.1)


@pytest.mark.slow
def test_larger_calls_are_split_again_to_fit_into_the_same_bytes(plans):
    step, (x, y) = rows_step()
    runner = neaptide.apply(plans["close"], step, time_limit_s=3.0)
    runner((x, y))
    runner((x.repeat(2, 1, 1), y.repeat(2, 1)))  # twice as much, in the same bytes
    assert runner.counts.replans == 1
    assert any(rewrite.rule == "fission" for rewrite in runner.plan.programs[0].rewrites)
    assert runner.plan.numerics == "close"


def convolutions():
    """One image through three convolutions, and no backward."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))).eval()

    def step(image):
        with torch.no_grad():
            return model(image)

    return step, torch.randn(1, 4, 64, 16)


def test_one_image_runs_in_parts_that_overlap(tmp_path):
    step, image = convolutions()
    budget = neaptide.Budget(None, latency=3600.0)
    plan = neaptide.plan(step, image, budget=budget, numerics="close", **LIMITS)
    made = plan.programs[0]
    assert "windows" in [rewrite.rule for rewrite in made.rewrites]
    assert (
        made.predictions.peak_with_workspace_bytes < 0.8 * made.predictions.baseline_peak_with_workspace_bytes
    )
    plan.save(tmp_path / "plan.json")
    report = neaptide.run(convolutions, str(tmp_path / "plan.json"), verify=True)
    assert report.predicted_peak_bytes == report.measured_peak_bytes
    assert max(report.max_abs_diff.values()) < 1e-5


@pytest.mark.parametrize(
    ("factory", "words"), [(rows_step, "forward and backward along"), (convolutions, "the forward along")]
)
def test_all_of_a_program_is_called_what_it_is(factory, words):
    begun = Variant.captured(graph_of(factory))
    whole = SimpleNamespace(kind="step", origin=("x", 0))
    assert Choice(begun, (whole,)).described() == f"{words} dim 0 of x"

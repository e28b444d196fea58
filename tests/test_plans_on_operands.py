"""Results on top of operands behind every search that keeps the bits: never worse, judged, run with eager's bits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from deep_step import QUICK
from frontends import steps
from neaptide.analysis.legality import check_schedule
from neaptide.api.search_options import search_options
from neaptide.ops import registry
from neaptide.outcome import TerminationReason
from neaptide.planner.budget import Budget
from neaptide.plans import Plan
from neaptide.report.plan_text import plan_document
from neaptide.runtime.plan_matching import same_budget
from neaptide.runtime.prepared_step import prepare

BUDGETS = (
    Budget(None),
    Budget("80%"),
    Budget("60%", host="1MiB"),
    Budget("min"),
    Budget(latency="+10%"),
)
PRESET = "rtx3090"  # times that are the same on every machine


class Convolutions(nn.Module):
    """Wide activations, whose gradients eager makes beside one another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second, self.third = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x))
        x = x + F.relu(self.second(x))
        return F.gelu(self.third(x)).mean((1, 2, 3))


def factory(rows=2):
    torch.manual_seed(0)
    model = Convolutions()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return steps.make_step(model, optimizer), torch.randn(rows, 3, 24, 24)


@pytest.fixture(scope="module")
def prepared():
    step, batch = factory()
    return prepare(step, (batch,), device=PRESET)


def planned(prepared, budget, **options):
    asked = search_options(
        budget, "default", QUICK["time_limit_s"], QUICK["work_limit"], 0, False, None, **options
    )
    return prepared.plan(asked)


def rules(plan):
    return [rewrite.rule for rewrite in plan.programs[0].rewrites]


@pytest.mark.parametrize(
    "budget", BUDGETS, ids=lambda budget: f"{budget.peak} {budget.latency} {budget.host}"
)
def test_no_plan_is_worse_for_it(prepared, budget):
    plain, made = (planned(prepared, budget, in_place=chosen) for chosen in (False, True))
    before, after = (found.plan.programs[0].predictions for found in (plain, made))
    assert after.baseline_peak_with_workspace_bytes == before.baseline_peak_with_workspace_bytes
    if budget.peak is None or budget.is_min:
        assert after.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
    else:
        allowed = plain.plan.programs[0].budget_bytes
        excess = [max(made.peak_with_workspace_bytes - allowed, 0) for made in (before, after)]
        assert (excess[1], after.seconds) <= (excess[0], before.seconds)
    runs = made.variant.graphs[0]
    check_schedule(runs.graph, runs.schedule, registry())
    assert rules(plain.plan) == []


def test_the_peak_falls_by_order_alone_and_what_is_proved_holds(prepared):
    plain, made = (planned(prepared, Budget(None), in_place=chosen).plan for chosen in (False, True))
    assert rules(made) == ["in_place"]
    program = made.programs[0]
    peak = program.predictions.peak_with_workspace_bytes
    assert peak < plain.programs[0].predictions.peak_with_workspace_bytes
    assert program.termination.best == peak
    assert program.termination.bound <= peak
    assert (program.termination.reason == TerminationReason.OPTIMAL) == (program.termination.bound == peak)


def test_less_is_recomputed_for_a_budget(prepared):
    plain, made = (planned(prepared, Budget("80%"), in_place=chosen).plan for chosen in (False, True))
    assert plain.programs[0].moves.recomputations
    assert rules(made) == ["in_place"]
    assert made.programs[0].predictions.seconds < plain.programs[0].predictions.seconds


@pytest.mark.parametrize("peak", ["90%", "80%"])
def test_with_room_on_the_host_less_waits_there_or_for_it(prepared, peak):
    budget = Budget(peak, host="1MiB")
    plain, made = (planned(prepared, budget, in_place=chosen).plan.programs[0] for chosen in (False, True))
    assert plain.stays
    assert [rewrite.rule for rewrite in made.rewrites] == ["in_place"]
    assert len(made.stays) < len(plain.stays)
    assert made.predictions.seconds < plain.predictions.seconds
    assert made.predictions.exposed_seconds <= plain.predictions.exposed_seconds


@pytest.mark.parametrize("budget", BUDGETS[:3], ids=lambda budget: f"{budget.peak}")
def test_such_plans_are_saved_explained_and_run_with_eagers_bits(tmp_path, prepared, budget):
    made = planned(prepared, budget).plan
    assert rules(made) == ["in_place"]
    made.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    report = neaptide.run(factory, loaded, verify=True)
    assert report.bitwise_equal
    assert report.measured_peak_bytes == report.predicted_peak_bytes
    assert "in_place" in plan_document(loaded).plain()


def test_a_strategy_by_name_and_an_atomic_step_are_left_alone():
    step, batch = factory()
    for options in ({"strategy": "greedy_recompute"}, {"atomic": True}):
        made = neaptide.plan(step, batch, budget="80%", device=PRESET, **options, **QUICK)
        assert rules(made) == []


def test_calls_of_other_shapes_are_planned_alike(prepared):
    made = planned(prepared, Budget("80%")).plan
    asked = same_budget(made, None)
    assert asked.in_place
    assert asked.rewrites == ()
    assert not same_budget(planned(prepared, Budget("80%"), in_place=False).plan, None).in_place


def test_a_compiled_step_trains_as_eager_does_on_calls_of_two_shapes():
    losses = []
    for compiled in (False, True):
        step, batch = factory()
        if compiled:
            step = neaptide.compile_step(step, budget="95%", **QUICK)
        losses.append([step(x) for x in (batch, batch, batch[:1], batch)])
    for eager, ours in zip(*losses, strict=True):
        assert torch.equal(eager, ours)

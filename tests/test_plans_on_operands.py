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
from neaptide.api.asking import ask_of
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.ops import registry
from neaptide.options import PlanOptions
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.graph_search import GraphSearch
from neaptide.plans import Plan
from neaptide.policy.plan_matching import same_budget
from neaptide.policy.prepared_step import prepare
from neaptide.report.plan_text import plan_document
from together import together

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
    return steps.simple(model, optimizer), torch.randn(rows, 3, 24, 24)


@pytest.fixture(scope="module")
def prepared():
    step, batch = factory()
    return prepare(step, (batch,), device=PRESET)


def planned(prepared, budget, **options):
    return prepared.plan(ask_of("plan", budget, {**QUICK, **options}, PlanOptions))


def rules(plan):
    return [rewrite.rule for rewrite in plan.programs[0].rewrites]


@pytest.mark.parametrize(
    "budget",
    [BUDGETS[1], *(pytest.param(budget, marks=pytest.mark.slow) for budget in (BUDGETS[0], *BUDGETS[2:]))],
    ids=lambda budget: f"{budget.peak} {budget.latency} {budget.host}",
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


@pytest.mark.parametrize("peak", ["90%", pytest.param("80%", marks=pytest.mark.slow)])
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


@pytest.fixture
def searches(monkeypatch):
    """Of each search for a graph: the work that it was given, and the work that its guard counted."""
    made, run = [], GraphSearch.run

    def noted(search):
        outcome = run(search)
        made.append((search.limits.work, outcome.work))
        return outcome

    monkeypatch.setattr(GraphSearch, "run", noted)
    return made


def searched(prepared, budget, work, **chosen):
    """Plan the usual program of a step."""
    options = Ask(budget, limits=Limits(work=work), **chosen)
    prepared.plan_program(0, options, prepared.allowed(options, 0, None))


@pytest.mark.parametrize("work", [3, 40, 300, pytest.param(2000, marks=pytest.mark.slow)])
@together("budget", [Budget("80%"), Budget("30%"), Budget(latency="+10%")], ids=str)
def test_both_searches_together_keep_to_a_limit_of_work(prepared, searches, budget, work):
    searches.clear()
    searched(prepared, budget, work)
    # The second where the first repeats something, is above the budget, or leaves time to repeat something.
    assert len(searches) in (1, 2)
    assert sum(used for _, used in searches) <= work
    assert searches[0][0] == work - work // 2
    if len(searches) > 1:
        assert searches[1][0] == work - searches[0][1]


def test_what_the_first_search_takes_of_its_work_leaves_some_for_the_second(prepared, searches):
    searched(prepared, Budget("30%"), 40)
    (allowed, used), (left, _) = searches
    assert used == allowed
    assert left == 20


def test_a_first_search_too_short_to_repeat_anything_is_followed_by_another(prepared, searches):
    """What it left of the time may be worth something where results lie on operands."""
    searched(prepared, Budget(latency="+50%"), 2)
    assert len(searches) == 2
    (_, used), (left, _) = searches
    assert left == 2 - used


def test_a_plan_within_its_bytes_that_repeats_nothing_is_not_searched_again(prepared, searches):
    searched(prepared, Budget("100%"), 2000)
    assert len(searches) == 1


@pytest.mark.parametrize("chosen", [{"in_place": False}, {"strategy": "greedy_recompute"}, {"atomic": True}])
def test_a_search_that_none_follows_has_all_of_the_work(prepared, searches, chosen):
    searched(prepared, Budget("80%"), 40, **chosen)
    assert [allowed for allowed, _ in searches] == [40]


def test_where_no_result_can_lie_on_an_operand_one_search_has_all_of_the_work(searches):
    weight = torch.ones(4, 4)
    searched(prepare(lambda x: x @ weight @ weight, (torch.ones(4, 4),), device=PRESET), Budget("30%"), 40)
    assert [allowed for allowed, _ in searches] == [40]

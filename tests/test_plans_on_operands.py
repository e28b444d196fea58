"""Results on top of operands: counted while a plan that keeps the bits is searched, written down as a rewrite, and run with eager's bits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import neaptide
from frontends import steps
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.api.asking import ask_of
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.schedule import Offload, Schedule
from neaptide.ops import registry
from neaptide.options import PlanOptions
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.graphs.graph_search import GraphSearch
from neaptide.planner.graphs.on_operands import Operands, offloads_after
from neaptide.planner.offload.gap_table import GapTable
from neaptide.planner.offload.host import HostSpace
from neaptide.plans import Plan
from neaptide.policy.plan_matching import same_budget
from neaptide.policy.prepared_step import PreparedStep
from neaptide.report.plan_text import plan_document
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.offloaded import with_offloads
from neaptide.schedule.replays import Replays
from support.drawn import examples
from support.steps import QUICK

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
    return PreparedStep(capture_step(step, (batch,)), device=PRESET)


def planned(prepared, budget, **options):
    return prepared.plan(ask_of("plan", budget, {**QUICK, **options}, PlanOptions))


def rules(plan):
    return [rewrite.rule for rewrite in plan.programs[0].rewrites]


def both(prepared, budget):
    """The usual program without and with results on top of operands."""
    return [planned(prepared, budget, in_place=chosen).plan.programs[0] for chosen in (False, True)]


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_bytes_of_a_search_are_those_of_the_rewritten_graph(prepared, data):
    """Whatever runs again and waits on the host; what is taken back takes its results off the operands."""
    graph = prepared.captured.steady.graph
    pricing = prepared.pricing(graph)
    operands = Operands.of(graph, prepared.pricing, lambda _: None, lambda _: None)
    problem = pricing.problem(graph)
    evaluator = Evaluator(problem.on_operands(operands.seconds))
    plain, replays = Evaluator(problem), Replays(evaluator)
    for _ in range(data.draw(st.integers(0, 4))):
        storage = data.draw(st.integers(0, len(graph.storages) - 1))
        before = data.draw(st.integers(0, len(graph.nodes)))
        creator = problem.creator[storage]
        if creator >= 0 and evaluator.place_of(creator) < evaluator.place_of(before):
            closure = replays.closure(storage, before)
            if closure.nodes:
                held = evaluator.bytes.tolist()
                evaluator.apply(replays.insertion(closure, before))
                if data.draw(st.booleans()):
                    evaluator.undo()
                    assert evaluator.bytes.tolist() == held
                else:
                    plain.apply(replays.insertion(closure, before))
    sequence = evaluator.sequence()
    assert evaluator.bytes.tolist() == Evaluator(evaluator.problem, sequence).bytes.tolist()
    assert (evaluator.bytes <= plain.bytes).all()
    assert evaluator.problem.lower_bound_bytes <= min(evaluator.peak, problem.lower_bound_bytes)
    offloads = ()
    for gap in GapTable(evaluator, HostSpace.of(graph, prepared.device, 2**30)).all():
        if data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.integers(gap.start, gap.end - 2))
            load = data.draw(st.integers(gone + 1, gap.end - 1))
            offloads = (*offloads, Offload(gap.storage, gap.occurrence, gap.start, gone, load, gap.end))
    offloads = tuple(
        sorted(offloads, key=lambda offload: (offload.store_after, offload.storage, offload.occurrence))
    )
    taken = [node for node, is_on in evaluator.on_operand.items() if is_on]
    after = operands.taken(taken)[0].graph if taken else graph
    moved = offloads_after(graph, after, sequence, offloads)
    schedule = Schedule.from_nodes(after, sequence).with_offloads(moved)
    check_schedule(after, schedule, registry())
    profile = memory_profile(after, schedule, workspace=pricing.prices(after).own_workspace)
    found = with_offloads(evaluator, offloads)
    assert found.peak == profile.peak_with_workspace_bytes
    assert found.peak_without_workspace == profile.peak_bytes
    assert found.host_bytes.tolist() == list(profile.host_bytes_at)


def test_the_peak_falls_by_order_alone_and_what_is_proved_holds(prepared):
    plain, made = both(prepared, Budget(None))
    assert [rewrite.rule for rewrite in made.rewrites] == ["in_place"]
    peak = made.predictions.peak_with_workspace_bytes
    assert peak < plain.predictions.peak_with_workspace_bytes
    assert made.termination.best == peak
    assert made.termination.bound <= peak
    assert (made.termination.reason == TerminationReason.OPTIMAL) == (made.termination.bound == peak)


@pytest.mark.parametrize(
    "budget", [Budget(None), Budget("80%"), Budget("60%", host="1MiB")], ids=lambda budget: f"{budget.peak}"
)
def test_such_plans_are_saved_explained_and_run_with_eagers_bits(tmp_path, prepared, budget):
    made = planned(prepared, budget).plan
    assert rules(made) == ["in_place"]
    made.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    report = neaptide.run(factory, loaded, verify=True)
    assert report.bitwise_equal
    assert report.measured_peak_bytes == report.predicted_peak_bytes
    assert "in_place" in plan_document(loaded).plain()
    asked = same_budget(made, None)  # calls of other shapes are planned alike
    assert asked.in_place
    assert asked.rewrites == ()


@pytest.mark.parametrize(
    "chosen", [{}, {"in_place": False}, {"strategy": "greedy_recompute"}, {"atomic": True}]
)
def test_one_search_has_all_of_the_work_and_a_strategy_by_name_or_an_atomic_step_is_left_alone(
    prepared, monkeypatch, chosen
):
    works, run = [], GraphSearch.run

    def noted(search):
        works.append(search.limits.work)
        return run(search)

    monkeypatch.setattr(GraphSearch, "run", noted)
    ask = Ask(Budget("80%"), limits=Limits(work=200), **chosen)
    program, _ = prepared.plan_program(0, ask, prepared.allowed(ask, 0, None))
    assert works == [200]
    assert bool(program.rewrites) == (not chosen)


@pytest.mark.parametrize(
    "budget",
    [
        Budget("80%"),
        *(
            pytest.param(budget, marks=pytest.mark.slow)
            for budget in (Budget(None), Budget("60%", host="1MiB"), Budget("min"), Budget(latency="+10%"))
        ),
    ],
    ids=lambda budget: f"{budget.peak} {budget.latency} {budget.host}",
)
def test_no_plan_is_worse_for_it(prepared, budget):
    plain, made = both(prepared, budget)
    before, after = plain.predictions, made.predictions
    assert after.baseline_peak_with_workspace_bytes == before.baseline_peak_with_workspace_bytes
    if budget.peak is None or budget.is_min:
        assert after.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
    else:
        excess = [max(made.peak_with_workspace_bytes - plain.budget_bytes, 0) for made in (before, after)]
        assert (excess[1], after.seconds) <= (excess[0], before.seconds)
    assert plain.rewrites == ()


def test_a_compiled_step_trains_as_eager_does_on_calls_of_two_shapes():
    losses = []
    for compiled in (False, True):
        step, batch = factory()
        if compiled:
            step = neaptide.compile_step(step, budget="95%", **QUICK)
        losses.append([step(x) for x in (batch, batch, batch[:1], batch)])
    for eager, ours in zip(*losses, strict=True):
        assert torch.equal(eager, ours)

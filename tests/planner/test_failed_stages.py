"""A part of a search that fails does not take the answer down, whichever it is; in tests it does."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest

import neaptide.planner.graphs.graph_search as graph_search_module
import neaptide.planner.graphs.own_schedule as own_schedule_module
import neaptide.planner.graphs.plan_graph as plan_graph_module
import neaptide.planner.portfolio as portfolio_module
import neaptide.planner.recompute.bounds.envelope as envelope_module
import neaptide.planner.recompute.curve.search as search_module
from neaptide.analysis.legality.schedule import check_schedule
from neaptide.budget import Budget
from neaptide.errors import MissingExtra, PlanError
from neaptide.ir.schedule import Schedule
from neaptide.outcome import Limits, Outcome, Termination, TerminationReason
from neaptide.planner.failed_stages import FailedStageWarning, Stage, failing_stages
from neaptide.planner.graphs.own_schedule import as_written
from neaptide.planner.graphs.plan_graph import GraphAsk, plan_graph
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.strategies import strategy
from neaptide_corpus.training_steps import conv_step, transformer_step
from planner.given_cost import given_pricing
from support.together import together

LIMITS = Limits(work=600)
MADE = transformer_step(layers=1, dropout=True)
BROKEN = "the pool grew\nand nothing was found"


@pytest.fixture
def production():
    with failing_stages(are_raised=False):
        yield


def planned(budget, made=MADE, **options):
    pricing = given_pricing(made.registry, made.seconds)
    return plan_graph(made.graph, pricing, GraphAsk(Budget(budget), limits=LIMITS, **options))


def is_sound(found, made=MADE):
    schedule = Schedule.from_nodes(made.graph, found.program.sequence)
    check_schedule(made.graph, schedule, made.registry)
    made_of = found.program.predictions
    return made_of.peak_with_workspace_bytes <= made_of.baseline_peak_with_workspace_bytes


def broken(*_, **__):
    raise ValueError(BROKEN)


def breaks(patch, names, instead=broken):
    """Has strategies of some names fail, wherever they are asked."""
    asked = set()

    def chosen(name):
        def solve(*arguments, **options):
            asked.add(name)
            return instead(*arguments, **options)

        return solve if name in names else strategy(name)

    for module in (search_module, graph_search_module, own_schedule_module):
        patch.setattr(module, "strategy", chosen)
    return asked


PORTFOLIO = ("early_updates", "best_order", "greedy_recompute", "block_dp", "lagrangian")


@together("names", [*((name,) for name in PORTFOLIO), PORTFOLIO], quick=(1, 4, 5))
@together("budget", ["70%", "min"])
def test_any_strategy_may_fail_and_all_of_them(monkeypatch, names, budget):
    with failing_stages(are_raised=False), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asked = breaks(monkeypatch, names)
        found = planned(budget)
    assert is_sound(found)
    assert len(told) == len(asked) or (told and len(names) > 1), "once, however often it fails"
    for warning in told:
        assert warning.category is FailedStageWarning
        text = str(warning.message)
        assert any(name in text for name in names) or len(names) > 1
        assert "ValueError: the pool grew" in text
        assert "report" in text
        assert "\n" not in text


@pytest.mark.usefixtures("production")
def test_a_strategy_asked_for_by_name_may_fail(monkeypatch):
    breaks(monkeypatch, {"lagrangian"})
    with pytest.warns(FailedStageWarning, match="the strategy lagrangian failed"):
        found = planned("80%", strategy="lagrangian").program
    assert found.sequence == tuple(range(found.node_count))
    assert found.termination.reason == "no_solution_found"


STAGES = (
    (plan_graph_module, "settle_arena", "70%"),
    (envelope_module, "bound_within", "90%"),
    (portfolio_module, "least_memory", "20%"),
    (graph_search_module, "least_memory", "min"),
    (graph_search_module, "plan_sequence", "70%"),
    (search_module, "NominalBudgets", "min"),
    (search_module, "nothing_held", "min"),
    (search_module, "BoundEnvelope", "min"),
)


@together("module, name, budget", STAGES, ids=[name for _, name, _ in STAGES], quick=(0, 1, 3, 4, 7))
def test_any_other_stage_may_fail(monkeypatch, module, name, budget):
    monkeypatch.setattr(module, name, broken)
    with failing_stages(are_raised=False), pytest.warns(FailedStageWarning, match="failed"):
        found = planned(budget)
    assert is_sound(found)


@pytest.mark.usefixtures("production")
def test_the_improvement_of_the_users_own_checkpoints_may_fail(monkeypatch):
    step = given_pricing(MADE.registry, MADE.seconds).problem(MADE.graph)
    own = as_written(MADE.graph, step, MADE.registry, ())
    monkeypatch.setattr(graph_search_module, "no_worse_than", broken)
    with pytest.warns(FailedStageWarning, match="checkpoints"):
        assert is_sound(planned("70%", own=own))


def illegal(problem, *_):
    """A plan that looks best and is none: it begins with what must come last."""
    order = tuple(reversed(range(problem.step.node_count)))
    found = PlannedSequence(order, "liar", 1, 1, 0.0)
    return Outcome(found, Termination(TerminationReason.OPTIMAL, best=0.0))


@together("budget", ["70%", "min"], quick=("70%",))
def test_an_illegal_plan_gives_way_to_the_best_legal_one(monkeypatch, budget):
    right = planned(budget)
    breaks(monkeypatch, {"early_updates", "lagrangian"}, illegal)
    with failing_stages(are_raised=False), pytest.warns(FailedStageWarning, match="cannot run"):
        found = planned(budget)
    assert is_sound(found)
    assert found.program.moves.recomputations
    peaks = [made.program.predictions.peak_with_workspace_bytes for made in (found, right)]
    assert peaks[0] <= 1.1 * peaks[1]


@pytest.mark.usefixtures("production")
def test_wrong_bytes_are_found_by_the_judge(monkeypatch):
    made = conv_step(blocks=2)
    evaluated = portfolio_module.plan_sequence

    def lower(*arguments, **options):
        outcome = evaluated(*arguments, **options)
        found = outcome.require()
        return replace(outcome, value=replace(found, peak_bytes=found.peak_bytes - 1))

    monkeypatch.setattr(graph_search_module, "plan_sequence", lower)
    with pytest.warns(FailedStageWarning, match="predictions.peak_bytes"):
        found = planned("70%", made)
    assert is_sound(found, made)
    assert found.program.sequence == tuple(range(found.program.node_count))


def test_in_tests_what_fails_is_raised(monkeypatch):
    breaks(monkeypatch, {"lagrangian"})
    with pytest.raises(ValueError, match="the pool grew"):
        planned("50%", strategy="lagrangian")
    breaks(monkeypatch, {"lagrangian"}, illegal)
    with pytest.raises(Exception, match="cannot run"):
        planned("50%", strategy="lagrangian")


@pytest.mark.usefixtures("production")
def test_what_the_user_can_put_right_is_raised_and_where_even_program_order_is_refused(monkeypatch):
    with pytest.raises(MissingExtra), Stage("the strategy moccasin"):
        raise MissingExtra("OR-tools is not installed")

    def refuse(*_, **__):
        raise PlanError("nothing is right")

    monkeypatch.setattr(plan_graph_module, "check_program", refuse)
    with pytest.warns(FailedStageWarning), pytest.raises(PlanError):
        planned("70%")

"""What every strategy owes: legal, no higher than the larger of budget and start, the same twice, an answer always."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_play import chain_step
from example_counts import examples
from neaptide.errors import UsageError
from neaptide.ir.builder import GraphBuilder
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.strategies import NAMES, early_updates, program_order, strategy
from neaptide.schedule.problem import compile_problem
from neaptide_corpus.training_steps import conv_step, pooled_step, toy_registry, transformer_step
from planner_problems import compiled, judge, stays_legal_and_no_higher, units_of
from strategies import graphs
from together import together

OWN = NAMES[:6]
ON_CHAINS = ("sqrt_n", "drop_cheap", "per_block", "revolve", "rotor", "block_dp")
QUICK = tuple(dict.fromkeys((*OWN, *ON_CHAINS)))
THAT_RECOMPUTE = ("greedy_recompute", "lagrangian", *ON_CHAINS)
STEPS = {
    "transformer": transformer_step(layers=4),
    "dropout": transformer_step(layers=2, dropout=True, clip=True),
    "conv": conv_step(blocks=4, batch=16),
    "pooled": pooled_step(),
}


def problem_of(step, share, start=None):
    """A budget that is a share of what program order has beyond the resident bytes."""
    peak = program_order.baseline(step).peak_with_workspace_bytes
    return PlanningProblem(step, step.resident_bytes + int(share * (peak - step.resident_bytes)), start)


@given(data=st.data(), name=st.sampled_from(THAT_RECOMPUTE), share=st.floats(0.2, 1.0))
@settings(max_examples=examples(300), deadline=None)
def test_any_graph_stays_legal_and_no_higher(name, data, share):
    stays_legal_and_no_higher(name, data.draw(graphs(min_nodes=2)), share)


@together("name", QUICK)
@together("made", STEPS.values(), ids=STEPS)
def test_training_steps_stay_legal_and_no_higher(name, made):
    step = compiled(made)
    early = early_updates.solve(PlanningProblem(step, 0), Limits()).require()
    for before in (program_order.baseline(step), early):
        problem = problem_of(step, 0.5, before.sequence)
        found = strategy(name)(problem, Limits(work=500 if name == "lagrangian" else None)).require()
        judge(made.graph, found, None, made.registry)
        if name != "program_order":
            assert found.rank(problem.budget_bytes) <= before.rank(problem.budget_bytes)
        if name in OWN:
            again = len(found.sequence) - step.node_count
            assert sum(len(unit.nodes) for unit in units_of(step, found)) == again


@together("name", QUICK)
def test_the_same_under_the_same_work_limit(name):
    step = compiled(STEPS["conv"])
    problem = problem_of(step, 0.5)
    for work in (0, 30, 1000):
        one, two = (strategy(name)(problem, Limits(work=work)) for _ in range(2))
        assert one.require() == two.require()
        assert one.work <= work


@together("name", THAT_RECOMPUTE)
def test_a_budget_that_is_met_is_handed_back_as_proved(name):
    step = chain_step(6)
    enough = strategy(name)(problem_of(step, 1.0), Limits())
    assert enough.termination.reason is TerminationReason.OPTIMAL
    assert enough.require().sequence == tuple(range(12))


@together("name", ON_CHAINS)
def test_a_start_with_repetitions_is_no_chain_and_handed_back_with_a_reason(name):
    step = chain_step(6)
    repeated = strategy(name)(PlanningProblem(step, 0, (0, 1, 2, 3, 4, 5, 0, *range(6, 12))), Limits())
    assert "recomputations already" in repeated.termination.detail
    assert len(repeated.require().sequence) == 13


@together("name", ("early_updates", "best_order"))
def test_a_start_with_repetitions_keeps_its_order(name):
    step = compiled(STEPS["transformer"])
    sequence = (*range(5), 0, *range(5, step.node_count))
    assert strategy(name)(PlanningProblem(step, 0, sequence), Limits()).require().sequence == sequence


@together("name", THAT_RECOMPUTE)
def test_an_interrupted_search_still_has_an_answer(name):
    stop = threading.Event()
    stop.set()
    outcome = strategy(name)(PlanningProblem(chain_step(8), 300), Limits(), stop)
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    assert outcome.require().sequence == tuple(range(16))


@together("name", [*NAMES, "default"])
def test_a_program_without_operations_is_handed_back(name):
    build = GraphBuilder("empty", toy_registry())
    build.output(build.input("x", (21,)))
    step = compile_problem(build.finish(), toy_registry())
    problem = PlanningProblem(step, 10)
    ended = plan_sequence(step, 10, Limits()) if name == "default" else strategy(name)(problem, Limits())
    assert ended.require().sequence == ()


def test_strategies_are_found_by_name_in_two_spellings():
    for name in NAMES:
        assert callable(strategy(name))
    assert strategy("greedy-recompute") is strategy("greedy_recompute")
    for gone in ("magic", "closure"):
        with pytest.raises(UsageError, match=f"no strategy is called {gone!r}"):
            strategy(gone)

"""What all strategies on chains of blocks owe: legal, no higher than the larger of budget and start, the same twice."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain_play import chain_step
from example_counts import examples
from neaptide.outcome import Limits, TerminationReason
from neaptide.planner.objective import PlanningProblem
from neaptide.planner.strategies import early_updates, program_order, strategy
from neaptide_corpus.training_steps import conv_step, pooled_step, transformer_step
from planner_problems import compiled, judge, stays_legal_and_no_higher, units_of
from strategies import graphs
from together import together

NAMES = ("sqrt_n", "drop_cheap", "per_block", "revolve", "rotor", "block_dp")
STEPS = {
    "transformer": transformer_step(layers=5),
    "dropout": transformer_step(layers=3, dropout=True, clip=True),
    "conv": conv_step(blocks=6, batch=16),
    "pooled": pooled_step(),
}


def share_of(step, share):
    peak = program_order.baseline(step).peak_with_workspace_bytes
    return step.resident_bytes + int(share * (peak - step.resident_bytes))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), share=st.floats(0.2, 1.0))
@settings(max_examples=examples(60))
def test_any_graph_stays_legal_and_no_higher(name, data, share):
    stays_legal_and_no_higher(name, data.draw(graphs(min_nodes=2)), share)


@together("name", NAMES)
@together("made", STEPS.values(), ids=STEPS)
def test_training_steps_stay_legal_and_no_higher(name, made):
    step = compiled(made)
    early = early_updates.solve(PlanningProblem(step, 0), Limits()).require()
    budget = share_of(step, 0.5)
    for start in (None, early.sequence):
        found = strategy(name)(PlanningProblem(step, budget, start), Limits()).require()
        judge(made.graph, found, None, made.registry)
        before = early if start else program_order.baseline(step)
        assert found.rank(budget) <= before.rank(budget)
        assert sum(len(unit.nodes) for unit in units_of(step, found)) == len(found.sequence) - step.node_count


@together("name", NAMES)
def test_the_same_under_the_same_work_limit(name):
    step = compiled(conv_step(blocks=4))
    problem = PlanningProblem(step, share_of(step, 0.5))
    for work in (0, 30, 1000):
        one, two = (strategy(name)(problem, Limits(work=work)) for _ in range(2))
        assert one.require() == two.require()
        assert one.work <= work


@together("name", NAMES)
def test_what_it_cannot_work_on_is_handed_back_with_a_reason(name):
    step = chain_step(6)
    peak = program_order.baseline(step).peak_bytes
    solve = strategy(name)
    enough = solve(PlanningProblem(step, peak), Limits())
    assert enough.termination.reason is TerminationReason.OPTIMAL
    assert "within the budget" in enough.termination.detail
    repeated = solve(PlanningProblem(step, 0, (0, 1, 2, 3, 4, 5, 0, *range(6, 12))), Limits())
    assert "recomputations already" in repeated.termination.detail
    assert len(repeated.require().sequence) == 13


@together("name", NAMES)
def test_an_interrupted_search_still_has_an_answer(name):
    step = chain_step(8)
    stop = threading.Event()
    stop.set()
    outcome = strategy(name)(PlanningProblem(step, 300), Limits(), stop)
    assert outcome.termination.reason is TerminationReason.INTERRUPTED
    assert outcome.require().sequence == tuple(range(16))


@together("name", NAMES)
def test_a_name_has_two_spellings(name):
    assert strategy(name.replace("_", "-")) is strategy(name)

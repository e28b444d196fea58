"""Rounds lift the bound of their first steps and stay below the optimum."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from example_counts import examples
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.recompute.bounds.joint_program import JointProgram
from neaptide.planner.recompute.bounds.joint_rounds import JointAnswer, JointRounds, RoundLimits, worst_steps
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.planner.strategies import program_order
from neaptide.schedule.recompute_form import from_json
from neaptide_corpus.recompute_forms import recompute_form
from planner_problems import least_seconds, random_chain, random_instance

LIMITS = RoundLimits(misses=3, rise=1e-4, most_variables=20000)


@given(st.integers(0, 10**6), st.integers(4, 7), st.booleans(), st.floats(0.4, 1.0), st.data())
@settings(max_examples=examples(200), deadline=None)
def test_no_sequence_is_faster(seed, count, chain, share, data):
    step = random_chain(seed, (count + 1) // 2) if chain else random_instance(seed, count)
    budget = int(share * program_order.baseline(step).peak_with_workspace_bytes)
    first = data.draw(st.sets(st.integers(0, step.node_count - 1), min_size=1, max_size=3))
    best = least_seconds(step, budget, most=3)
    rounds = JointRounds(StepTables(step, None), budget, None, LIMITS)
    rounds.run(first)
    if best is None:
        return
    assert rounds.refuted_at < 0
    # Before the first node nothing is held.
    assert rounds.best is not None or first == {0}
    bound = 0.0 if rounds.best is None else rounds.best.solution.bound
    assert bound <= best - step.baseline_seconds + 1e-6


@pytest.mark.parametrize("family", ["residual", "skips", "layered"])
def test_the_bound_rises_from_that_of_the_best_single_step(family):
    step = from_json(json.dumps(recompute_form(family, 60, 1)))
    tables = StepTables(step, None)
    budget = int(0.5 * tables.profile.max())
    first = [int(tables.profile.argmax())]
    alone = JointProgram(tables, first, budget)
    answer = alone.relax()
    added = worst_steps(tables, budget, JointAnswer(alone, answer), 5)
    assert all(tables.profile[position] > budget for position in added)
    assert not {*added} & {*first}
    found = []
    for misses in (1, 3):
        rounds = JointRounds(tables, budget, None, RoundLimits(misses, 1e-4, 20000))
        rounds.run(first)
        found.append(rounds.best.solution.bound)
    assert answer.bound <= found[0] * (1 + 1e-9) <= found[1] * (1 + 2e-9)
    assert answer.bound < found[1]


def test_limits_end_the_rounds():
    step = random_chain(5, 8)
    tables = StepTables(step, None)
    budget = int(0.7 * tables.profile.max())
    late = JointRounds(tables, budget, LimitGuard(Limits(time_s=0.0)), LIMITS)
    small = JointRounds(tables, budget, None, RoundLimits(3, 1e-4, 3))
    refuted = JointRounds(tables, 0, None, LIMITS)
    for rounds in (late, small, refuted):
        rounds.run([8])
        assert rounds.best is None
    assert late.programs == small.programs == 0
    assert refuted.refuted_at == 8

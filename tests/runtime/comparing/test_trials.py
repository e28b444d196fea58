"""Which of a few plans that were run is taken, and what the plan says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.budget import Budget
from neaptide.errors import PlanError
from neaptide.plans import Plan, TrialRow
from neaptide.runtime.comparing.trials import (
    TrialLimit,
    decide,
    other_budgets,
)
from neaptide.runtime.steps.planned_graph import StepPlan
from neaptide.settings import MOST_TRIALS
from support.together import together
from test_plans import PROGRAM


def trial(peak, ratio, seconds=1.0):
    return TrialRow("a limit", peak, 1.25, ratio, ratio, ratio, seconds)


TRIALS = st.lists(
    st.builds(trial, st.integers(0, 5), st.integers(1, 5).map(float), st.integers(1, 5).map(float)),
    min_size=1,
    max_size=6,
)


@given(TRIALS, st.integers(0, 6), st.booleans())
def test_nothing_that_measured_within_a_limit_of_time_is_lower_than_the_choice(trials, longest, by_ratio):
    limit = TrialLimit(longest_ratio=longest) if by_ratio else TrialLimit(longest_seconds=longest)
    index, reason = limit.choose(trials)
    took = [one.measured_ratio if by_ratio else one.measured_seconds for one in trials]
    within = [one for one, time in zip(trials, took, strict=True) if time <= longest]
    if within:
        assert reason == "least_peak"
        assert took[index] <= longest
        assert trials[index].predicted_peak_bytes == min(one.predicted_peak_bytes for one in within)
    else:
        assert reason == "none_within"
        assert trials[index].measured_ratio == min(one.measured_ratio for one in trials)


@given(TRIALS)
def test_for_a_limit_of_bytes_the_fastest_is_taken(trials):
    index, reason = TrialLimit().choose(trials)
    assert reason == "fastest"
    assert trials[index].measured_ratio == min(one.measured_ratio for one in trials)


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(None, latency="+10%"), TrialLimit(longest_ratio=1.1)),
        (Budget("min", latency="250ms"), TrialLimit(longest_seconds=0.25)),
        (Budget("60%"), TrialLimit()),
        (Budget("60%", latency="+10%"), TrialLimit()),
    ],
)
def test_a_budget_says_what_is_held_against_measurements(budget, limit):
    assert TrialLimit.of(budget) == limit


@together("count", range(2, MOST_TRIALS + 1))
def test_the_other_budgets_lie_around_the_one_asked_for(count):
    longest = [made.resolve_latency(2.0) for made in other_budgets(Budget(None, "+10%"), count, 2.0, 100)]
    assert len(set(longest)) == count - 1
    assert 2.2 not in longest
    peaks = [made.resolve(1000) for made in other_budgets(Budget("60%"), count, 2.0, 600)]
    assert len(set(peaks)) == count - 1
    assert max(peaks) < 600


def step_plan(peak):
    made = replace(PROGRAM.predictions, peak_bytes=peak, peak_with_workspace_bytes=peak)
    plan = Plan((replace(PROGRAM, predictions=made), replace(PROGRAM, role="first_1")), name="step")
    return StepPlan(plan, Variant(plan))


@dataclass(frozen=True)
class Variant:
    """Stands for what runs."""

    plan: Plan


@pytest.fixture
def decided():
    plans = [step_plan(900), step_plan(700), step_plan(500)]
    trials = trial(900, 0.9), trial(700, 1.05), trial(500, 1.3)
    return decide(plans, trials, TrialLimit(1.1), beside="the step as it is", clock="processor", rounds=3)


def test_the_plan_says_what_was_tried_and_survives_its_file(decided, tmp_path):
    steady, first = decided.plan.programs
    assert first.trials is None
    assert steady.predictions.peak_bytes == 700
    assert (steady.trials.chosen, steady.trials.reason) == (1, "least_peak")
    assert [row.measured_ratio for row in steady.trials.rows] == [0.9, 1.05, 1.3]
    assert {row.predicted_ratio for row in steady.trials.rows} == {1.25}
    decided.plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == decided.plan


def test_a_record_of_another_choice_is_refused(decided):
    steady = decided.plan.programs[0]
    for chosen, words in ((7, "is 7 of 3"), (2, "has another predicted peak")):
        wrong = replace(steady, trials=replace(steady.trials, chosen=chosen))
        with pytest.raises(PlanError, match=words):
            Plan.from_json(replace(decided.plan, programs=(wrong,)).to_json())

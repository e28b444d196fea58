"""Plans of one step for several limits, each legal, and those of them that are worth a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.ask import Ask, ByTrials
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.outcome import Limits
from neaptide.planner.variants.variant import Division
from neaptide.plans import Plan, TriedVariant
from neaptide.policy.plan_matching import matched
from neaptide.policy.searched_front import distinct, plans_for, plans_to_try, searched_front, undominated
from support import catalogue
from support.step_checks import assert_runs_as_predicted
from support.steps import rows_step, wide_head

LIMITS = Limits(None, 300, 0)


@pytest.fixture(scope="module")
def prepared():
    return catalogue.prepared(rows_step, device="rtx3090")


@pytest.mark.parametrize(
    ("strategy", "numerics"),
    [
        ("default", "bitwise"),
        ("default", "close"),
        pytest.param("micro_batch", "close", marks=pytest.mark.slow),
    ],
)
def test_each_plan_is_for_the_whole_step_and_legal(prepared, strategy, numerics):
    asked = Ask(Budget(None, latency="+20%"), strategy, LIMITS, numerics=numerics, workers=1)
    others = [Budget(None, latency="+0%"), Budget(None, latency="+60%")]
    found = plans_for(prepared, asked, others).best
    assert len(found) == 3
    for made, share in zip(found, (0.2, 0.0, 0.6), strict=True):
        assert made.plan.budget == found[0].plan.budget
        assert made.plan.programs[1:] == found[0].plan.programs[1:]
        assert made.variant.plan is made.plan
        predictions = made.plan.programs[0].predictions
        assert predictions.seconds <= (1 + share) * predictions.baseline_seconds
        variant = matched(Plan.from_json(made.plan.to_json()), prepared)
        assert variant.graphs[0].graph == made.variant.graphs[0].graph
    peaks = [made.plan.programs[0].predictions.peak_with_workspace_bytes for made in found]
    assert peaks[2] <= peaks[0] <= peaks[1]  # what keeps a shorter limit counts for a longer one


def test_a_program_is_run_once_and_none_that_another_is_predicted_to_beat(prepared):
    options = Ask(Budget(None, latency="+20%"), limits=LIMITS)
    one, other = plans_for(prepared, options, [Budget(None, latency="+0%")]).best
    program = one.plan.programs[0]
    slower = replace(program, predictions=replace(program.predictions, seconds=9.0), sequence=(0,))
    beaten = replace(one, plan=replace(one.plan, programs=(slower,)))
    assert distinct([one, other, one]) == (0, 1)
    assert distinct([beaten, one]) == (1,)


STEPS = {"rows": (rows_step, 3.0), "wide": (wide_head, 1.0)}  # with how much more time parts are worth it


@pytest.fixture(scope="module")
def divided():
    """By step, what it is, plans for a long limit and for a shorter one, and these limits."""
    made = {}
    for name, (factory, more) in STEPS.items():
        prepared = catalogue.prepared(factory, device="rtx3090")
        limits = more, more / 2
        asked, other = (Budget(None, latency=f"+{100 * limit:g}%") for limit in limits)
        options = Ask(asked, limits=Limits(None, 6000, 0), numerics="close", workers=1)
        made[name] = prepared, plans_for(prepared, options, [other], otherwise_for=2), limits
    return made


def seconds_and_peak(made):
    predictions = made.plan.programs[0].predictions
    return predictions.seconds, predictions.peak_with_workspace_bytes


@pytest.mark.slow
def test_plans_that_are_divided_in_other_ways_keep_the_limit_and_are_legal(divided):
    met = set()
    for prepared, found, limits in divided.values():
        for best, others, share in zip(found.best, found.otherwise, limits, strict=True):
            own = best.variant.graphs[0].division
            assert own not in others
            met |= {own, *others}
            for division, made in others.items():
                assert made.variant.graphs[0].division is division
                seconds, peak = seconds_and_peak(made)
                assert seconds <= (1 + share) * made.plan.programs[0].predictions.baseline_seconds
                assert peak >= seconds_and_peak(best)[1]
                assert made.plan.programs[1:] == best.plan.programs[1:]
                variant = matched(Plan.from_json(made.plan.to_json()), prepared)
                assert variant.graphs[0].graph == made.variant.graphs[0].graph
    assert met == set(Division)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_plan_that_is_divided_in_another_way_runs_as_predicted(divided, name):
    _, found, _ = divided[name]
    for made in found.otherwise[0].values():
        assert_runs_as_predicted(STEPS[name][0], made)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [Budget(None, latency="+100%"), Budget("78%")])
def test_for_the_limit_itself_each_way_to_divide_is_worth_a_run(divided, budget):
    prepared, _, _ = divided["wide"]
    options = Ask(budget, limits=Limits(None, 6000, 0), numerics="close", workers=1, mode=ByTrials(2))
    plans, words = plans_to_try(prepared, options)
    assert len(plans) == len(words) == len(set(words))
    for made, told in zip(plans, words, strict=True):
        if ", " in told:
            assert told.endswith(made.variant.graphs[0].division.value)
    assert len({made.variant.graphs[0].division for made in plans}) > 1


PLANS = st.builds(TriedVariant, st.just("x"), st.integers(0, 20), st.integers(0, 20).map(float))


@given(st.lists(PLANS, max_size=30))
def test_what_is_left_is_what_nothing_beats(plans):
    front = undominated(plans)
    for plan in plans:
        assert any(p.peak_bytes <= plan.peak_bytes and p.seconds <= plan.seconds for p in front)
    for one in front:
        others = [p for p in front if p is not one]
        assert not any(p.peak_bytes <= one.peak_bytes and p.seconds <= one.seconds for p in others)
    assert [p.seconds for p in front] == sorted(p.seconds for p in front)


def test_a_step_over_rows_has_a_front_from_program_order_to_parts(prepared):
    options = Ask(Budget("min"), limits=Limits(None, 200, 0), numerics="close", workers=1)
    with pytest.raises(UsageError, match="a front cannot have 1 points"):
        searched_front(prepared, options, 1)
    front = searched_front(prepared, options, 3)
    peaks = [point.peak_bytes for point in front.points]
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[0] <= front.baseline_peak_bytes
    assert front.points[0].seconds <= front.baseline_seconds
    assert peaks[-1] < 0.7 * front.baseline_peak_bytes
    assert "parts" in front.points[-1].label

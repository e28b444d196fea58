"""Plans of one step for several limits, each legal, and those of them that are worth a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neaptide.outcome import Limits
from neaptide.planner.budget import Budget
from neaptide.plans import Plan
from neaptide.runtime import searched_front
from neaptide.runtime.capturing import capture
from neaptide.runtime.plan_matching import matched
from neaptide.runtime.prepared_step import PreparedStep
from neaptide.runtime.search_options import SearchOptions
from neaptide.runtime.searched_front import distinct, plans_for
from wide_rows import rows_step

LIMITS = Limits(None, 2000, 0)


@pytest.fixture(scope="module")
def prepared():
    step, batch = rows_step()
    return PreparedStep(capture(step, (batch,)), device="rtx3090")


@pytest.mark.parametrize(
    ("strategy", "numerics"), [("default", "bitwise"), ("micro_batch", "close"), ("default", "close")]
)
def test_each_plan_is_for_the_whole_step_and_legal(prepared, strategy, numerics):
    asked = SearchOptions(Budget(None, latency="+20%"), strategy, LIMITS, numerics=numerics)
    others = [Budget(None, latency="+0%"), Budget(None, latency="+60%")]
    found = plans_for(prepared, asked, others)
    assert len(found) == 3
    for made, share in zip(found, (0.2, 0.0, 0.6), strict=True):
        assert made.plan.budget == found[0].plan.budget
        assert made.plan.programs[1:] == found[0].plan.programs[1:]
        assert made.variant.plan is made.plan
        predictions = made.plan.programs[0].predictions
        assert predictions.seconds <= (1 + share) * predictions.baseline_seconds
        variant = matched(Plan.from_json(made.plan.to_json()), prepared.captured, None)
        assert variant.graphs[0].graph == made.variant.graphs[0].graph
    peaks = [made.plan.programs[0].predictions.peak_with_workspace_bytes for made in found]
    assert peaks[2] <= peaks[0] <= peaks[1]  # what keeps a shorter limit counts for a longer one


def test_for_fewer_bytes_the_budget_stays_what_was_asked_for(prepared):
    options = SearchOptions(Budget("90%"), limits=LIMITS, numerics="close")
    found = plans_for(prepared, options, [Budget("50%")])
    asked, lower = (made.plan.programs[0] for made in found)
    assert asked.budget_bytes == lower.budget_bytes
    assert lower.predictions.peak_with_workspace_bytes < asked.predictions.peak_with_workspace_bytes
    matched(Plan.from_json(found[1].plan.to_json()), prepared.captured, None)


@pytest.mark.parametrize("numerics", ["bitwise", "close"])
def test_a_plan_for_one_limit_counts_for_another(prepared, monkeypatch, numerics):
    """A search that is given hardly anything ends with what the one before it found."""
    shares = iter((1.0, 0.0))
    part_of = searched_front.part_of
    monkeypatch.setattr(searched_front, "part_of", lambda limits, _: part_of(limits, next(shares)))
    options = SearchOptions(Budget(None, latency="+60%"), limits=LIMITS, numerics=numerics)
    asked, longer = plans_for(prepared, options, [Budget(None, latency="+70%")])
    peaks = [made.plan.programs[0].predictions.peak_with_workspace_bytes for made in (asked, longer)]
    assert peaks[1] <= peaks[0] < asked.plan.programs[0].predictions.baseline_peak_with_workspace_bytes
    variant = matched(Plan.from_json(longer.plan.to_json()), prepared.captured, None)
    assert variant.graphs[0].graph == longer.variant.graphs[0].graph


def test_a_program_is_run_once_and_none_that_another_is_predicted_to_beat(prepared):
    options = SearchOptions(Budget(None, latency="+20%"), limits=LIMITS)
    one, other = plans_for(prepared, options, [Budget(None, latency="+0%")])
    program = one.plan.programs[0]
    slower = replace(program, predictions=replace(program.predictions, seconds=9.0), sequence=(0,))
    beaten = replace(one, plan=replace(one.plan, programs=(slower,)))
    assert distinct([one, other, one]) == (0, 1)
    assert distinct([beaten, one]) == (1,)

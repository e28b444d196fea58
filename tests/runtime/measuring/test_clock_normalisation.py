"""Predictions beside measurements are told at the speed of the processor meanwhile; decisions are not taken by it."""

from __future__ import annotations

import pytest

import neaptide
from frontends import steps
from neaptide.budget import Budget
from neaptide.cost.timing.call_clock import CallClock, ClockNormalisation
from neaptide.errors import InfeasibleBudget
from neaptide.report.comparison_text import comparison_document
from support.steps import QUICK, deep_factory
from support.together import together

SLOWER = 2.0


@pytest.fixture
def slower(monkeypatch):
    """A processor that takes twice as long as at the speed that costs are kept at."""
    monkeypatch.setattr(
        CallClock, "reference_now_s", lambda self: SLOWER * getattr(self, "reference_s", 1e-5)
    )
    monkeypatch.setattr(CallClock, "usual_reference_s", CallClock.reference_now_s)


@together(
    ("normalisation", "factor", "told"),
    [
        (ClockNormalisation(2e-5, 2.08e-5), 1.04, False),
        (ClockNormalisation(2e-5, 2.2e-5), 1.1, True),
        (ClockNormalisation(2e-5, 1.8e-5), 0.9, True),
        (ClockNormalisation(0.0, 2e-5), 1.0, False),  # a clock that is too coarse
        (ClockNormalisation(2e-5, 0.0), 1.0, False),
    ],
)
def test_clocks_that_differ_are_told(normalisation, factor, told):
    assert normalisation.factor == pytest.approx(factor)
    assert normalisation.is_worth_telling == told


@pytest.mark.slow
def test_a_comparison_tells_predictions_at_the_clock_that_it_saw(slower):
    compared = {
        repeats: neaptide.compare(deep_factory, repeats=repeats, eager=False, **QUICK) for repeats in (0, 1)
    }
    assert compared[0].reference_seen_s is None
    assert compared[1].reference_seen_s == pytest.approx(SLOWER * compared[1].reference_kept_s)
    kept, seen = (compared[repeats].row("baseline").predicted_step_seconds for repeats in (0, 1))
    assert seen == pytest.approx(SLOWER * kept)
    assert (
        "predicted step times are 2.00 times those that plans are decided by"
        in comparison_document(compared[1]).plain()
    )
    assert "times those that plans" not in comparison_document(compared[0]).plain()


def planned(latency):
    step, batch = steps.mlp()
    return neaptide.plan(step, batch, budget=Budget(None, latency=latency), **QUICK)


def test_a_limit_in_seconds_is_one_of_seconds_now_and_a_share_does_not_look_at_the_clock(slower, monkeypatch):
    planned("+900%")  # costs that are not kept yet are measured, at a speed
    with monkeypatch.context() as patch:
        patch.setattr(CallClock, "usual_reference_s", lambda _: pytest.fail("the speed was looked at"))
        free = planned("+900%")
    assert free.budget.clock_factor == 1.0
    seconds = free.programs[0].predictions.baseline_seconds
    with pytest.raises(InfeasibleBudget, match="at most"):
        planned(0.5 * SLOWER * seconds)
    found = planned(9 * SLOWER * seconds)
    assert found.budget.clock_factor == pytest.approx(SLOWER)
    assert found.budget.latency == 9 * SLOWER * seconds
    assert "at the speed of the processor then, 2.00 times those of this report; held." in found.explain()
    again = type(found).from_json(found.to_json())
    assert again.budget == found.budget

"""Plans that are chosen by what they measured, through the public functions and the command line."""

from __future__ import annotations

import pytest

import neaptide
from neaptide.errors import InfeasibleBudget, UsageError
from support.steps import deep_factory

QUICK = {"time_limit_s": None, "work_limit": 30, "trials": 2}

pytestmark = pytest.mark.usefixtures("traced_once")


def test_a_plan_that_was_run_says_what_was_tried(tmp_path):
    plan = neaptide.plan_by_trials(deep_factory, budget=neaptide.Budget(None, latency="+900%"), **QUICK)
    record = plan.programs[0].trials
    assert record.reason == "least_peak"
    peaks = [row.predicted_peak_bytes for row in record.rows]
    assert peaks[record.chosen] == min(peaks)
    text = plan.explain()
    assert "chosen by running it" in text
    assert "Taken: the least peak of those that measured within 10.000 of that time." in text
    plan.save(tmp_path / "plan.json")
    report = neaptide.run(deep_factory, tmp_path / "plan.json", steps=1, verify=True)
    assert report.predicted_peak_bytes == report.measured_peak_bytes


def test_where_no_plan_measures_within_the_limit_the_fastest_is_told():
    with pytest.raises(InfeasibleBudget, match="measured within the latency 1e-09") as caught:
        neaptide.plan_by_trials(deep_factory, budget=neaptide.Budget(None, latency=1e-9), **QUICK)
    record = caught.value.plan.programs[0].trials
    ratios = [row.measured_ratio for row in record.rows]
    assert ratios[record.chosen] == min(ratios)
    assert "so the fastest is taken" in caught.value.plan.explain()


def test_a_plan_for_another_device_cannot_be_tried():
    with pytest.raises(UsageError, match="trials and another device exclude each other"):
        neaptide.compare(deep_factory, budget="80%", device="rtx3090", **QUICK)

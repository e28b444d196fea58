"""Parts and schedules one after the other: plans that stand before the checker, by name, none worse than what it began with."""

from __future__ import annotations

import pytest

import neaptide
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.named_peers import COMBINATIONS
from neaptide.outcome import Limits
from support import catalogue
from support.steps import rows_step


@pytest.fixture(scope="module")
def prepared():
    return catalogue.prepared(rows_step, device="rtx3090")


def planned(prepared, strategy, numerics="close", latency=3600.0):
    options = Ask(Budget(None, latency=latency), strategy, Limits(work=1000), numerics=numerics, workers=1)
    return prepared.plan(options).plan.programs[0]


@pytest.fixture(scope="module")
def plans(prepared):
    return {name: planned(prepared, name) for name in COMBINATIONS}


def peak(program):
    return program.predictions.peak_with_workspace_bytes


def test_parts_alone_recompute_nothing_and_keep_the_order(plans):
    program = plans["transform_only"]
    assert program.sequence == tuple(range(program.node_count))
    assert any(rewrite.rule == "fission" for rewrite in program.rewrites)
    assert peak(program) < program.predictions.baseline_peak_with_workspace_bytes


def test_a_schedule_for_the_same_parts_is_no_higher(plans):
    first, then = plans["transform_only"], plans["transform_then_plan"]
    assert then.rewrites == first.rewrites
    assert peak(then) <= peak(first)


def test_parts_behind_a_schedule_are_no_higher_than_it(prepared, plans):
    schedule = planned(prepared, "default", numerics="bitwise")
    assert peak(plans["plan_then_transform"]) <= peak(schedule)


def test_limits_of_time_are_of_the_step_as_it_is(prepared):
    for name in COMBINATIONS:
        made = planned(prepared, name, latency="+10%").predictions
        assert made.seconds <= 1.1 * prepared.as_written().seconds * (1 + 1e-9)


@pytest.mark.parametrize("strategy", COMBINATIONS)
def test_they_take_sums_in_another_order(strategy):
    step, batch = rows_step()
    with pytest.raises(UsageError, match="takes sums in another order"):
        neaptide.plan(step, batch, budget="60%", strategy=strategy)

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from frontends import steps
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.outcome import Limits, TerminationReason
from neaptide.policy.prepared_step import prepare
from neaptide.report.profiling import over_budget, profile_report
from support import catalogue

LIMITS = Limits(work=100)


@pytest.fixture(scope="module")
def prepared():
    torch.manual_seed(0)
    step, batch = steps.batch_norm()
    return prepare(step, (batch,), run_operations=False, name="normed")


def test_a_report_adds_up(prepared):
    report = profile_report(prepared, has_device=False, seed=4)
    assert report.name == "normed"
    assert report.seed == 4
    assert sum(report.bytes_by_kind_at_peak.values()) == report.predicted_peak_bytes
    assert sum(row.nbytes for row in report.live_at_peak) == report.predicted_peak_bytes
    assert report.lower_bound_bytes <= report.order_lower_bound_bytes
    assert report.order_lower_bound_bytes <= report.predicted_peak_with_workspace_bytes
    assert report.capacity_bytes is None
    assert report.fits is None
    assert not report.workspace_is_known
    assert report.operations == len(prepared.captured.steady.graph.nodes)
    assert report.peak_at.partition(":")[0].endswith(".py")


def test_the_error_names_what_is_alive_and_what_would_do(prepared):
    found = prepared.plan(Ask(Budget("50%"), limits=LIMITS, atomic=True))
    error = over_budget(prepared, found)
    assert error is not None
    assert error.plan is found.plan
    assert error.smallest_peak_bytes > found.plan.programs[0].budget_bytes
    assert error.live[-1] == "copies of an atomic step (96 B)"
    assert "(activation, " in "".join(error.live) or "(input, " in "".join(error.live)
    assert str(error).count("\n  ") == 3


@pytest.mark.parametrize(
    ("reason", "limit", "told"),
    [
        (TerminationReason.INTERRUPTED, None, "was interrupted"),
        (TerminationReason.NO_SOLUTION_FOUND, "time", "came to its time limit"),
        (TerminationReason.NO_SOLUTION_FOUND, None, "no further change helps"),
        (TerminationReason.INFEASIBLE, None, "a proof"),
    ],
)
def test_the_reason_tells_a_proof_from_a_search_that_ended(prepared, reason, limit, told):
    found = prepared.plan(Ask(Budget("50%"), limits=LIMITS))
    program = found.plan.programs[0]
    ended = replace(program.termination, reason=str(reason), limit=limit, detail="a proof")
    plan = replace(found.plan, programs=(replace(program, termination=ended), *found.plan.programs[1:]))
    error = over_budget(prepared, replace(found, plan=plan))
    assert error is not None
    assert told in error.why


def test_whether_a_step_fits_is_judged_against_the_named_device():
    small = catalogue.prepared(steps.mlp, device="rtx3090")
    report = profile_report(small, has_device=True, seed=0)
    assert report.fits
    assert report.capacity_bytes == small.device.usable_bytes
    assert report.over_bytes == report.predicted_peak_with_workspace_bytes - report.capacity_bytes
    assert not report.seconds_are_measured


def test_the_first_step_is_held_to_the_budget_as_well(prepared):
    found = prepared.plan(Ask(Budget("100%"), limits=LIMITS))
    steady, first = found.plan.programs
    plan = replace(found.plan, programs=(steady, replace(first, budget_bytes=1)))
    error = over_budget(prepared, replace(found, plan=plan))
    assert error is not None
    assert "the first step" in error.what

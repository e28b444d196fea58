"""A plan with a loop placed by hand, from end to end: planned, saved, loaded elsewhere, judged, run, compared with eager."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from fission_play import along, split, touching
from neaptide.errors import PlanError
from neaptide.plans import Plan
from neaptide.runtime.steps.capturing import capture
from plan_edits import GONE, edited
from run_elsewhere import run_elsewhere

ROWS = 70  # in 3 parts of 24, 24 and 22


def rows_step(rows=ROWS, rate=0.1):
    """A step over 70 rows; the mean loss is a sum and a division behind it."""
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def step(batch):
        x, y = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, reduction="sum") / len(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(rows, 8), torch.randint(0, 3, (rows,)))


def planned_with(step, batch, rewrites):
    """A plan with these rewrites alone: whether results lie on operands as well depends on measured costs."""
    return neaptide.plan(
        step,
        batch,
        budget=neaptide.Budget(None),
        rewrites=rewrites,
        time_limit_s=None,
        work_limit=100,
        in_place=False,
    )


@functools.cache
def planned():
    step, batch = rows_step()
    graph = capture(step, (batch,)).steady.graph
    loop = split(graph, touching(graph, along(graph, ROWS)), ROWS, 3)
    return planned_with(step, batch, [loop])


@pytest.mark.slow
def test_a_plan_with_a_loop_runs_in_another_process_as_predicted(tmp_path):
    made = planned()
    (rewrite,) = made.programs[0].rewrites
    assert rewrite.rule == "fission"
    made.save(tmp_path / "plan.json")
    differences, predicted, measured = run_elsewhere(
        "test_plans_with_loops", "rows_step", tmp_path / "plan.json"
    )
    assert max(differences.values()) < 1e-5
    assert predicted == measured == made.programs[0].predictions.peak_bytes
    assert predicted < 0.8 * made.programs[0].predictions.baseline_peak_bytes


def test_a_loop_that_was_edited_in_the_file_is_refused():
    def in_four(settings):
        assert ["parts", 3] in settings
        return [["parts", 4] if one == ["parts", 3] else one for one in settings]

    text = edited(planned(), ("captured rewrites 0 settings", in_four))
    with pytest.raises(PlanError):
        neaptide.run(rows_step, Plan.from_json(text))


def test_a_file_without_bodies_of_rewrites_is_read():
    text = edited(planned(), ("captured rewrites 0 within", GONE))
    assert Plan.from_json(text) == planned()


def test_a_loop_that_is_left_out_is_told_once(caplog):
    step, batch = rows_step()
    runner = neaptide.apply(planned(), step, time_limit_s=1.0)
    runner(batch)
    for rows in (64, 50):
        _, other = rows_step(rows)
        runner(other)
    assert runner.counts.planned == 3
    (told,) = [r.getMessage() for r in caplog.records if "run without" in r.getMessage()]
    assert "fission" in told

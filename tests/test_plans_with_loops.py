"""A plan with a loop placed by hand, from end to end: planned, saved, loaded elsewhere, judged, run, compared with eager."""

from __future__ import annotations

import functools
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from fission_play import along, split, touching
from neaptide.errors import PlanError
from neaptide.plans import Plan
from neaptide.runtime.capturing import capture
from neaptide.runtime.plan_matching import same_budget
from neaptide.runtime.prepared_step import PreparedStep
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


@functools.cache
def planned():
    step, batch = rows_step()
    graph = capture(step, (batch,)).steady.graph
    loop = split(graph, touching(graph, along(graph, ROWS)), ROWS, 3)
    return neaptide.plan(
        step, batch, budget=neaptide.Budget(None), rewrites=[loop], time_limit_s=None, work_limit=100
    )


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


def test_a_loop_that_was_edited_in_the_file_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    planned().save(path)
    data = json.loads(path.read_text())
    text = json.dumps(data)
    assert '["parts", 3]' in text
    path.write_text(text.replace('["parts", 3]', '["parts", 4]'))
    with pytest.raises(PlanError):
        neaptide.run(rows_step, Plan.load(path))


def replanned(plan, rows, rate):
    """The rewrites of a plan made again for other calls, and what was told of those that are left out."""
    step, batch = rows_step(rows, rate)
    prepared, told = PreparedStep(capture(step, (batch,))), []
    variant = prepared.plan(same_budget(plan, 1.0, lambda *left: told.append(left))).variant
    return [made.rule for made in variant.graphs[0].rewrites], told


def test_a_loop_is_placed_again_where_it_is_legal_and_else_left_out_with_the_reason():
    plan = planned()
    assert replanned(plan, ROWS, 0.01) == (["fission"], [])
    rules, told = replanned(plan, 64, 0.1)
    assert rules == []
    ((rule, why),) = told
    assert rule == "fission"
    assert "\n" not in why


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

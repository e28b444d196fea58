"""A plan with a loop placed by hand, from end to end: planned, saved, loaded elsewhere, judged, run, compared with eager."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from fission_play import along, split, touching
from neaptide.errors import PlanError
from neaptide.plans import Plan
from neaptide.runtime.capturing import capture

ROWS = 70  # in 3 parts of 24, 24 and 22


def rows_step():
    """A step over 70 rows; the mean loss is a sum and a division behind it."""
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        x, y = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, reduction="sum") / ROWS
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(ROWS, 8), torch.randint(0, 3, (ROWS,)))


@functools.cache
def planned():
    step, batch = rows_step()
    graph = capture(step, (batch,)).steady.graph
    loop = split(graph, touching(graph, along(graph, ROWS)), ROWS, 3)
    return neaptide.plan(
        step, batch, budget=neaptide.Budget(None), rewrites=[loop], time_limit_s=None, work_limit=100
    )


ELSEWHERE = """
import sys, json, neaptide, test_plans_with_loops as here
report = neaptide.run(here.rows_step, sys.argv[1], verify=True)
print(json.dumps([report.max_abs_diff, report.predicted_peak_bytes, report.measured_peak_bytes]))
"""


def test_a_plan_with_a_loop_runs_in_another_process_as_predicted(tmp_path):
    made = planned()
    (rewrite,) = made.programs[0].rewrites
    assert rewrite.rule == "fission"
    made.save(tmp_path / "plan.json")
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    ran = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "plan.json")],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    differences, predicted, measured = json.loads(ran.stdout.splitlines()[-1])
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

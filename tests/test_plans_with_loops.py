"""A plan with a loop placed by hand, from end to end: planned, saved, loaded elsewhere, checked, run, compared with eager."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from neaptide.errors import PlanError
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ops import registry
from neaptide.plans import Plan
from neaptide.policy.plan_matching import same_budget
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.rewrite import replay, sizes_within
from neaptide.transform.rules import RULES
from support.damaged_files import edited
from support.run_elsewhere import run_elsewhere
from transform.fission_play import along, split, touching

ROWS = 70  # in 3 parts of 24, 24 and 22


def rows_step(rows=ROWS, rate=0.1):
    """A step over 70 rows; the mean loss is a sum and a division after it."""
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


def test_a_loop_that_was_edited_in_the_file_is_refused():
    def in_four(settings):
        assert ["parts", 3] in settings
        return [["parts", 4] if one == ["parts", 3] else one for one in settings]

    text = edited(planned(), ("captured rewrites 0 settings", in_four))
    with pytest.raises(PlanError):
        neaptide.run(rows_step, Plan.from_json(text))


@functools.cache
def planned_within():
    """The step in parts of 24, 24 and 22 rows, and these in parts of 6, the last of them 4."""
    step, batch = rows_step()
    graph = capture(step, (batch,)).steady.graph
    outer = split(graph, touching(graph, along(graph, ROWS)), ROWS, 3)
    around = replay(graph, registry(), [outer], RULES).graph
    (loop,) = (node.id for node in around.nodes if node.regions)
    body = with_sizes(around.nodes[loop].regions[0].body, sizes_within(around, loop)[0])
    rows = [n for n in touching(body, along(body, 24)) if not body.nodes[n].effects.writes]
    rewrites = [outer, replace(split(body, rows, 24, 4), within=(loop,))]
    return planned_with(step, batch, rewrites)


@pytest.mark.slow
def test_a_plan_with_a_loop_in_a_loop_runs_in_another_process_as_predicted(tmp_path):
    made = planned_within().programs[0]
    assert [rewrite.within for rewrite in made.rewrites] == [(), (made.rewrites[1].within[0],)]
    planned_within().save(tmp_path / "plan.json")
    differences, predicted, measured = run_elsewhere(
        "test_plans_with_loops", "rows_step", tmp_path / "plan.json"
    )
    assert max(differences.values()) < 1e-5
    assert predicted == measured == made.predictions.peak_bytes
    assert predicted < planned().programs[0].predictions.peak_bytes
    told = "a region runs in parts (fission), at 2 places, 1 of them within a loop"
    assert told in planned_within().explain()


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

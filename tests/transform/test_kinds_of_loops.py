"""A loop runs again as a whole where bytes are short."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from neaptide.budget import Budget
from neaptide.ops import registry
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from support.steps import trained
from transform.fission_play import (
    along,
    split,
    touching,
)

ROWS = 37


def step_of(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    return trained(optimizer, lambda batch: F.mse_loss(model(batch[0]), batch[1], reduction="sum") / ROWS)


def two_hills():
    """Two wide stretches: what the first keeps for its backward is there at the peak of the second."""
    torch.manual_seed(0)
    hill = [[nn.Linear(4, 256), nn.GELU(), nn.Linear(256, 4)] for _ in range(2)]
    return step_of(nn.Sequential(*hill[0], *hill[1])), (torch.randn(ROWS, 4), torch.randn(ROWS, 4))


def test_the_planner_recomputes_a_loop_where_bytes_are_short():
    step, batch = two_hills()
    graph = capture(step, (batch,)).steady.graph
    wide = [n for n in touching(graph, along(graph, ROWS)) if graph.nodes[n].source.phase == "forward"]
    loop = split(graph, wide[:2], ROWS, 3)
    plan = neaptide.plan(
        step, batch, budget=Budget("min"), rewrites=[loop], time_limit_s=None, work_limit=500
    )
    program = plan.programs[0]
    looped = replay(graph, registry(), program.rewrites, RULES).graph
    (number,) = (node.id for node in looped.nodes if node.regions)
    assert program.sequence.count(number) >= 2
    runner = neaptide.apply(plan, step)
    ours = [runner(batch) for _ in range(3)]
    other, again = two_hills()
    torch.testing.assert_close(ours, [other(again) for _ in range(3)])

"""Loops of every kind that a plan may have: run again as a whole, parts of one element, sums in a narrow dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from fission_play import (
    along,
    assert_close,
    random_inputs,
    run_measured,
    split,
    touching,
)
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.budget import Budget
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from wide_rows import trained

ROWS = 37


def step_of(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    return trained(optimizer, lambda batch: F.mse_loss(model(batch[0]), batch[1], reduction="sum") / ROWS)


def wide_step(dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))
    batch = (torch.randn(ROWS, 6, dtype=dtype), torch.randn(ROWS, 4, dtype=dtype))
    return step_of(model.to(dtype)), batch


def forward_in_parts(graph, parts):
    """The first layers, forward alone: what the backward needs of them leaves the loop."""
    wide = [
        number
        for number in touching(graph, along(graph, ROWS))
        if graph.nodes[number].source.phase == "forward"
    ]
    return replay(graph, registry(), [split(graph, wide[:4], ROWS, parts)], RULES).graph


def test_a_loop_that_runs_again_as_a_whole():
    step, batch = wide_step()
    graph = capture(step, (batch,)).steady.graph
    looped = forward_in_parts(graph, 4)
    (loop,) = (node for node in looped.nodes if node.regions)
    made = {looped.values[v].storage for v in loop.outputs}
    order = [node.id for node in looped.nodes]
    first_backward = next(
        node.id
        for node in looped.nodes
        if node.source.phase == "backward"
        and made.intersection(looped.values[v].storage for v in node.inputs)
    )
    again = order.index(first_backward)
    schedule = Schedule.from_nodes(looped, [*order[:again], loop.id, *order[again:]])
    inputs = random_inputs(graph)
    assert_close(run_measured(looped, inputs, schedule), run_measured(graph, inputs))
    once, twice = (memory_profile(looped, s) for s in (Schedule.program_order(looped), schedule))
    between = order.index(loop.id) + 2
    assert twice.bytes_at[between + 2] < once.bytes_at[between + 2]


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


def test_sums_in_a_narrow_dtype_stay_within_its_digits():
    step, batch = wide_step(torch.bfloat16)
    graph = capture(step, (batch,)).steady.graph
    looped = replay(
        graph, registry(), [split(graph, touching(graph, along(graph, ROWS)), ROWS, 5)], RULES
    ).graph
    inputs = [i.bfloat16() if isinstance(i, torch.Tensor) else i for i in random_inputs(graph)]
    for ours, theirs in zip(run_measured(looped, inputs), run_measured(graph, inputs), strict=True):
        assert ours.dtype == theirs.dtype
        scale = float(theirs.abs().max())
        # Each of five parts rounds its sum once more, to 8 bits.
        assert float((ours - theirs).abs().max()) <= 5 * 2.0**-8 * max(scale, 1e-3)

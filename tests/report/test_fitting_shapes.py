"""The largest shapes within a limit are those that trying every shape finds, and the step runs at them."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

import neaptide
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import UsageError
from neaptide.ops import registry
from neaptide.planner.points.choices.largest import LimitedProgram
from neaptide.planner.points.plan import Decisions
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.policy.points.for_all_shapes import PointsMaker
from neaptide.report.fitting_shapes import fitting_shapes
from neaptide.report.profile_text import ranges_blocks
from neaptide.runtime.measuring.meter import LiveBytesMeter
from neaptide.runtime.steps.capturing import capture
from support.step_checks import needs_varying_dims

pytestmark = needs_varying_dims

WIDTH = 8
DEVICE = get_device("a100-40g")
ROWS, TOKENS = range(2, 7), range(2, 17)
LIMIT = 14_000


def make():
    torch.manual_seed(0)
    layers = [module for _ in range(3) for module in (nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.GELU())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x):
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@pytest.fixture(scope="module")
def captured():
    ranges = {0: (ROWS[0], ROWS[-1]), 1: (TOKENS[0], TOKENS[-1])}
    return capture(make(), (torch.zeros(3, 5, WIDTH),), {}, dynamic={"x": ranges})


@pytest.fixture(scope="module")
def cost():
    return EstimatedCost(DEVICE, registry())


@pytest.fixture(scope="module")
def fit(captured):
    return cache(lambda limit=LIMIT: fitting_shapes(captured, DEVICE, limit))


def limited(captured, cost, limit):
    largest = {"x_0": ROWS[-1], "x_1": TOKENS[-1]}
    for program in captured.programs:
        graph = program.graph
        shaped = ShapedProgram(graph, cost, range(len(graph.nodes)), largest)
        plan = PointsMaker(DEVICE).within(shaped, largest, limit).plan
        yield LimitedProgram(shaped, Decisions(plan), limit)


@pytest.mark.parametrize(
    "limit", [LIMIT, *(pytest.param(one, marks=pytest.mark.slow) for one in (100, 10_000, 20_000, 10**6))]
)
def test_every_row_is_what_trying_every_shape_finds(captured, cost, fit, limit):
    programs = list(limited(captured, cost, limit))
    found = fit(limit)
    assert found.limit_bytes == limit
    assert [row.beside for row in found.rows] == [{"x_0": rows} for rows in (2, 4, 6)]
    for row in found.rows:
        shapes = {tokens: {**row.beside, "x_1": tokens} for tokens in TOKENS}
        in_order = [t for t, shape in shapes.items() if all(p.fits_in_order(shape) for p in programs)]
        either = in_order + [
            t for t, shape in shapes.items() if all(p.fits_with_points(shape) for p in programs)
        ]
        assert row.in_program_order == max(in_order, default=None)
        assert row.with_points == max(either, default=None)
        assert (row.predicted_added_time is None) == (row.with_points is None)


@pytest.mark.slow
def test_the_answer_is_the_peak_that_one_shape_alone_is_predicted_to_have():
    report = neaptide.profile(
        make(), torch.zeros(3, 5, WIDTH), dynamic={"x": {1: (2, None)}}, fit=LIMIT, audit=False
    )
    assert report.ranges is not None
    assert report.ranges.fit is not None
    (row,) = report.ranges.fit.rows
    assert row.beside == {}
    peaks = [
        neaptide.profile(make(), torch.zeros(3, size, WIDTH), audit=False).predicted_peak_with_workspace_bytes
        for size in (row.in_program_order, row.in_program_order + 1)
    ]
    assert peaks[0] <= LIMIT < peaks[1]
    told = "\n".join(
        str(getattr(block, "plain", lambda b=block: b)()) for block in ranges_blocks(report.ranges)
    )
    assert f"| x_1 | {row.in_program_order} " in " ".join(told.split())


def test_without_dims_or_with_more_than_two_there_is_no_table():
    with pytest.raises(UsageError, match="needs dims"):
        neaptide.profile(make(), torch.zeros(3, 5, WIDTH), fit="1MiB", audit=False)
    many = capture(
        lambda x: x.sum(), (torch.zeros(3, 4, 5),), {}, dynamic={"x": dict.fromkeys(range(3), (2, 9))}
    )
    with pytest.raises(UsageError, match="3 dims vary"):
        fitting_shapes(many, DEVICE, LIMIT)


@pytest.mark.slow
def test_the_step_stays_within_the_limit_at_the_largest_shape(fit):
    row = fit().rows[1]
    sizes = {0: (2, row.beside["x_0"]), 1: (2, row.with_points)}
    fast = neaptide.compile_step(
        make(), budget=LIMIT, dynamic={"x": sizes}, time_limit_s=None, work_limit=200
    )
    x = torch.ones(row.beside["x_0"], row.with_points, WIDTH)
    for _ in range(3):
        with LiveBytesMeter([x, *fast.persistent()]) as meter:
            fast(x)
    assert meter.peak_bytes <= LIMIT
    assert fast.eviction.peak_bytes <= LIMIT

"""A plan for all shapes is saved, checked when it is read, and runs with eager's bits and the predicted peak, unplanned."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import neaptide
from neaptide.errors import PlanError, PlanMismatch, UsageError
from neaptide.plans import Plan, ShapesProgram
from neaptide.policy import plans_by_shape as searching
from neaptide.report.run_text import run_document
from neaptide.runtime.measuring.meter import measure_step
from neaptide.runtime.steps.arena_report import predicted_at
from support.step_checks import needs_varying_dims

pytestmark = needs_varying_dims

WIDTH, LARGEST = 8, 24
DYNAMIC = {"x": {0: (2, LARGEST)}}


def make():
    torch.manual_seed(0)
    layers = [
        module
        for _ in range(2)
        for module in (nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    ]
    model = nn.Sequential(*layers)

    def step(x):
        loss = model(x).square().sum()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.01)
                parameter.grad = None
        return loss.detach()

    return step, model


def batch(rows):
    torch.manual_seed(1)
    return torch.randn(rows, WIDTH)


@functools.cache
def saved(strategy):
    step, _ = make()
    found = neaptide.plan(
        step,
        batch(5),
        budget="85%",
        dynamic=DYNAMIC,
        strategy=strategy,
        time_limit_s=None,
        work_limit=200,
    )
    return Plan.from_json(found.to_json())


@pytest.fixture(params=["default", pytest.param("by_shape", marks=pytest.mark.slow)])
def plan(request):
    return saved(request.param)


@pytest.fixture(params=["default", "by_shape"])
def either_plan(request):
    return saved(request.param)


def steady(plan) -> ShapesProgram:
    return plan.all_shapes.programs[0]


def test_it_runs_every_shape_as_eager_does_and_nothing_is_planned_again(either_plan, monkeypatch):
    monkeypatch.delattr("neaptide.policy.points.for_all_shapes.PointsMaker.within")
    monkeypatch.delattr(searching, "_shapes")
    (step, model), (eager, reference) = make(), make()
    fast = either_plan.apply(step, on_mismatch="error")
    for rows in (5, LARGEST, 2, 17):
        assert torch.equal(fast(batch(rows)), eager(batch(rows)))
    for own, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(own, other)
    assert fast.counts.planned == 4


def test_the_predicted_peak_of_each_shape_is_measured_and_within_the_limit(plan):
    step, _ = make()
    fast = plan.apply(step)
    fast(batch(5))
    graph = fast._variants[-1].planned.graphs[0]  # what runs
    for rows in (2, 13, LARGEST):
        x = batch(rows)
        found = measure_step(lambda x=x: fast(x), lambda x=x: [x, *fast.persistent()])
        alone, with_workspace = predicted_at(graph, {"x_0": rows})
        assert found.measured_peak_bytes == alone
        assert alone <= with_workspace <= steady(plan).budget_bytes


def edits(program):
    """Programs that are wrong, and what is said of them."""
    points, plans = program.points, program.plans
    if points is None:
        backwards = replace(plans[0], sequence=plans[0].sequence[::-1])
        yield replace(program, plans=(backwards, *plans[1:])), "sequence"
        yield replace(program, plans=tuple(p for p in plans if p.planned_at is not None)), "plans"
        yield replace(program, plans=()), "points"
        return
    moved = (*program.peaks.curves[0].baseline_peak_bytes[1:], 10**6)
    peaks = replace(program.peaks, curves=(replace(program.peaks.curves[0], baseline_peak_bytes=moved),))
    wider = tuple(replace(dim, high=dim.high + 1) for dim in program.dims)
    yield replace(program, peaks=peaks), "peaks"
    yield replace(program, dims=wider), "dims"
    yield replace(program, budget_bytes=1, peaks=replace(program.peaks, limit_bytes=1)), "limit|points|budget"
    yield replace(program, peaks=replace(program.peaks, limit_bytes=1)), "limit_bytes"
    yield replace(program, points=replace(points, order=points.order[::-1])), "order"
    yield replace(program, points=replace(points, order=points.order[1:])), "order"
    yield replace(program, points=replace(points, found=points.found + 1)), "points"


def test_an_edited_plan_is_refused_by_the_field_that_is_wrong(either_plan):
    step, _ = make()
    for edited, field in edits(steady(either_plan)):
        shapes = replace(either_plan.all_shapes, programs=(edited, *either_plan.all_shapes.programs[1:]))
        with pytest.raises(PlanError, match=field):
            replace(either_plan, all_shapes=shapes).apply(step)(batch(5))


def test_a_dim_of_torch_export_is_kept():
    rows = torch.export.Dim("rows", min=2, max=LARGEST)
    made = neaptide.plan(
        make()[0], batch(5), budget="100%", dynamic={"x": {0: rows}}, time_limit_s=None, work_limit=200
    )
    assert [(a.name, a.low, a.high) for a in made.all_shapes.asked] == [("rows", 2, LARGEST)]
    (step, _), (eager, _) = make(), make()
    assert torch.equal(Plan.from_json(made.to_json()).apply(step)(batch(9)), eager(batch(9)))


def test_what_excludes_a_plan_for_all_shapes_is_told(plan):
    with pytest.raises(UsageError, match="exclude each other"):
        neaptide.plan(make()[0], batch(5), budget="80%", dynamic=DYNAMIC, atomic=True)
    with pytest.raises(UsageError, match="a saved plan exclude each other where dynamic is given"):
        neaptide.plan(make()[0], batch(5), budget="80%", dynamic=DYNAMIC, numerics="close")
    with pytest.raises(UsageError, match="outside of its range 2 to 24"):
        neaptide.plan(make()[0], batch(LARGEST + 1), budget="80%", dynamic=DYNAMIC)
    content = json.loads(plan.to_json())["plan"]
    assert content["programs"] == []


def test_points_run_in_an_arena_that_is_laid_out_by_shape_and_plans_by_shape_do_not(plan):
    if plan.all_shapes.programs[0].points is None:
        with pytest.raises(UsageError, match="by shape does not run in an arena"):
            plan.apply(make()[0], arena=True)
        with pytest.raises(UsageError, match="by shape does not run in an arena"):
            neaptide.run(lambda: (make()[0], batch(5)), plan, arena=True)
        return
    report = neaptide.run(lambda: (make()[0], batch(5)), plan, steps=2, verify=True, arena=True)
    assert report.bitwise_equal
    assert report.measured_peak_bytes <= report.predicted_peak_bytes == report.arena.peak_bytes
    largest = report.arena_on_the_way[-1]
    assert largest.shape == {"x_0": LARGEST}
    assert report.arena.arena_bytes < largest.arena_bytes
    assert all(one.live_bytes <= one.arena_bytes for one in report.arena_on_the_way)
    assert f"x_0 = {LARGEST}" in str(run_document(report))


def test_a_shape_outside_of_the_ranges_is_planned_by_itself(plan):
    (step, _), (eager, _) = make(), make()
    fast = plan.apply(step)
    assert torch.equal(fast(batch(5)), eager(batch(5)))
    assert torch.equal(fast(batch(1)), eager(batch(1)))
    assert (fast.counts.replans, fast.counts.planned) == (1, 2)


def test_another_step_is_told_what_differs(plan):
    model = nn.Linear(WIDTH, WIDTH)

    def step(x):
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    with pytest.raises(PlanMismatch, match="does not fit"):
        plan.apply(step)(batch(5))

"""Arenas through the public functions."""

from __future__ import annotations

import json

import pytest
import torch

import neaptide
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.outcome import Limits
from neaptide.report.comparison_text import comparison_document
from neaptide.report.model import to_json
from neaptide.report.run_text import run_document
from neaptide.runtime.arena.plan import ArenaOptions
from support import catalogue
from support.steps import QUICK, deep, deep_factory

pytestmark = pytest.mark.usefixtures("traced_once")


@pytest.fixture(scope="module")
def plan():
    return catalogue.planned(deep_factory, Ask(Budget("70%"), limits=Limits(work=QUICK["work_limit"]))).plan


def losses(step, batch, count=3):
    return torch.stack([step(batch) for _ in range(count)])


@pytest.mark.parametrize(
    "arena", [pytest.param(True, marks=pytest.mark.slow), ArenaOptions("all", in_place=True)]
)
def test_a_plan_applied_in_an_arena_has_eagers_bits(plan, arena):
    _, _, eager, batch = deep()
    _, _, step, same = deep()
    fast = plan.apply(step, arena=arena)
    assert torch.equal(losses(fast, same), losses(eager, batch))
    assert fast.arena.arena_bytes >= fast.arena.live_bytes > 0


def test_a_step_compiled_in_an_arena_plans_other_shapes_too():
    _, _, eager, batch = deep()
    _, _, step, same = deep()
    fast = neaptide.compile_step(step, budget="80%", arena=True, **QUICK)
    for count in (batch.shape[0], batch.shape[0] // 2):
        assert torch.equal(losses(fast, same[:count], 2), losses(eager, batch[:count], 2))
        assert fast.arena is not None


def test_a_run_in_an_arena_is_verified_and_told(plan):
    report = neaptide.run(deep_factory, plan, steps=2, verify=True, arena=True)
    assert report.bitwise_equal
    assert report.measured_peak_bytes <= report.predicted_peak_bytes == report.arena.peak_bytes
    assert report.measured_allocator_peak_bytes <= report.predicted_peak_with_workspace_bytes
    assert "one block of" in str(run_document(report))
    assert json.loads(to_json(report))["arena"]["arena_bytes"] == report.arena.arena_bytes


@pytest.mark.parametrize("budget", [pytest.param("70%", marks=pytest.mark.slow), None])
def test_a_comparison_has_a_row_for_it(budget):
    found = neaptide.compare(deep_factory, budget=budget, repeats=1, arena=True, **QUICK)
    row = found.row("arena")
    assert [r.name for r in found.rows] == ["eager", "baseline", *(["plan"] if budget else []), "arena"]
    assert row.bitwise_equal
    assert row.measured_allocator_peak_bytes <= row.predicted_peak_with_workspace_bytes
    assert row.measured_peak_bytes <= row.predicted_peak_bytes
    text = str(comparison_document(found))
    assert "of it arena" in text
    assert "written in place" in text

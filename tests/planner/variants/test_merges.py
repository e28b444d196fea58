"""What every variant does besides: it costs nothing, buys time that recomputation spends, and reaches into the bodies of loops."""

from __future__ import annotations

import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.budget import Budget
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.schedule import Schedule
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.merges import merged, without_joins
from neaptide.planner.variants.variant import Variant
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from planner.variants import variant_search
from planner.variants.variant_search import PRICING, choices_of_all
from support.steps import trained

FREE = {"accumulate_in_gemm", "in_place"}


class Gated(nn.Module):
    """Two branches of one activation, whose gradients meet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.gate(x)) * self.up(x))


class Packed(nn.Module):
    """Attention with one projection, whose gradient is a stack that is copied to be a matrix."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        query, key, value = self.qkv(x).view(batch, seq, 3, 2, width // 2).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, seq, width))


class Skips(nn.Module):
    """A small U-Net: what the first level made is joined with what comes from below."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.below = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.back, self.last = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = torch.relu(self.first(x))
        back = self.back(torch.relu(self.below(F.max_pool2d(kept, 2))))
        return self.last(torch.cat([kept, back], 1))


def step_of(model, *shape):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    step = trained(optimizer, lambda x: model(x).square().mean())
    return step, torch.randn(*shape)


def gated_step(blocks=4):
    return step_of(nn.Sequential(*(Gated(16) for _ in range(blocks))), 8, 12, 16)


def captured(step, batch):
    return capture_step(step, (batch,)).steady.graph


def searched(graph, *, merging, longer=0.0, prices=PRICING, only=lambda _: False, work=600):
    """The fewest bytes that are found within a time, as a share of the program's peak, and what was done."""
    before = baseline(prices.problem(graph))
    budget = Budget("min", latency=before.seconds * (1 + longer))
    limits = Limits(None, work)
    found = variant_search.searched(graph, budget, limits, prices=prices, only=only, merging=merging)
    made = found.found.program.predictions
    assert made.seconds <= before.seconds * (1 + longer)
    return made.peak_with_workspace_bytes / before.peak_with_workspace_bytes, found


def test_a_merge_buys_the_time_that_recomputation_spends():
    graph = captured(*gated_step(2))
    plain, _ = searched(graph, merging=False)
    share, found = searched(graph, merging=True)
    assert share < 0.95 * plain
    assert "sums in products" in found.label
    assert found.found.program.moves.recomputations  # no merge alone lowers it so far


class SlowWhereNew(EstimatedCost):
    """Every operation that `known` does not have takes a millisecond more."""

    known: frozenset[str] = frozenset()

    def seconds(self, graph, node, *bodies):
        return EstimatedCost.seconds(self, graph, node, *bodies) + (node.op not in self.known) * 1e-3


@pytest.mark.slow
def test_merges_that_only_lose_time_are_left_out(monkeypatch):
    graph = captured(*gated_step())
    monkeypatch.setattr(SlowWhereNew, "known", frozenset(node.op for node in graph.nodes))
    prices = Pricing(SlowWhereNew(get_device("rtx3090"), registry()), registry())
    share, found = searched(graph, merging=True, longer=1.0, prices=prices)
    plain, _ = searched(graph, merging=False, longer=1.0, prices=prices)
    assert not [rewrite for rewrite in found.variant.rewrites if rewrite.rule == "accumulate_in_gemm"]
    assert share <= plain


@pytest.mark.slow
def test_joins_go_where_their_bytes_are_worth_the_time():
    graph = captured(*step_of(Skips(), 16, 3, 128, 128))
    plain, _ = searched(graph, merging=False)
    share, found = searched(graph, merging=True)
    assert share < 0.7 * plain
    assert "concat_before_convolution" in [rewrite.rule for rewrite in found.variant.rewrites]
    small = captured(
        *step_of(Skips(), 4, 3, 16, 16)
    )  # two calls instead of one take longer than the bytes are worth
    _, found = searched(small, merging=True)
    assert "concat_before_convolution" not in [rewrite.rule for rewrite in found.variant.rewrites]


def test_they_reach_into_the_bodies_of_loops():
    graph = captured(*gated_step())
    choices = choices_of_all()
    choice = choices.after(choices.begun(graph))[0]
    variant = choices.taken(choice, 2)
    assert variant is not None
    made = merged(variant, choices)
    inside = [rewrite.rule for rewrite in made.rewrites if rewrite.within]
    assert set(inside) == FREE
    assert replay(graph, registry(), made.rewrites, RULES).graph == made.graph
    before, after = (memory_profile(one.graph, Schedule.program_order(one.graph)) for one in (variant, made))
    assert after.peak_with_workspace_bytes <= before.peak_with_workspace_bytes
    prices = PRICING
    assert baseline(prices.problem(made.graph)).seconds < baseline(prices.problem(variant.graph)).seconds

    kept = merged(variant, choices, keeps_operands=True)
    assert {rewrite.rule for rewrite in kept.rewrites if rewrite.within} == FREE - {"in_place"}
    outside = [[one for one in some.rewrites if not one.within] for some in (kept, made)]
    assert len(outside[0]) == len(outside[1])


@pytest.mark.slow
def test_where_time_is_left_unspent_parts_that_overwrite_nothing_are_planned_too():
    graph = captured(*gated_step())
    _, found = searched(
        graph, merging=True, longer=20.0, only=lambda choice: choice.regions[0].kind == "step", work=500
    )
    kept = [one for one in found.tried if one.label.endswith("with its operands kept")]
    assert kept
    least = min(one.peak_bytes for one in found.tried)
    assert found.found.program.predictions.peak_with_workspace_bytes == least


def test_copies_are_made_once_inside_loops_as_well():
    graph = captured(*step_of(nn.Sequential(*(Packed(16) for _ in range(3))), 8, 12, 16))
    choices, prices = choices_of_all(), PRICING
    in_parts = choices.taken(choices.after(choices.begun(graph))[0], 2)
    assert in_parts is not None
    for variant in (Variant.captured(graph), in_parts):
        made = merged(variant, choices)
        within = {bool(one.within) for one in made.rewrites if one.rule == "redundant_copies"}
        assert within == {variant is in_parts}
        before, after = (baseline(prices.problem(one.graph)) for one in (variant, made))
        assert after.seconds < before.seconds
        assert after.peak_with_workspace_bytes <= before.peak_with_workspace_bytes


def test_what_is_not_wanted_is_left_and_told():
    graph = captured(*step_of(Skips(), 2, 3, 8, 8))
    choices = Choices(registry(), lambda _: "verify runs look at it")
    assert merged(Variant.captured(graph), choices).rewrites == ()
    assert without_joins(Variant.captured(graph), choices).rewrites == ()
    assert choices.refusals == ["in_place: verify runs look at it"]


@pytest.mark.slow
def test_a_plan_says_what_was_done_and_runs_as_predicted(tmp_path, caplog):
    step, batch = gated_step(2)
    caplog.set_level(logging.INFO, logger="neaptide.planner")
    caplog.set_level(logging.INFO, logger="neaptide.policy")
    plan = neaptide.plan(
        step,
        batch,
        budget=neaptide.Budget(None, latency=3600.0),
        numerics="close",
        time_limit_s=None,
        work_limit=300,
    )
    assert "sums in products and results on top of operands" in caplog.text
    assert FREE & {rewrite.rule for rewrite in plan.programs[0].rewrites}
    plan.save(tmp_path / "plan.json")
    report = neaptide.run(lambda: gated_step(2), str(tmp_path / "plan.json"), verify=True)
    assert report.predicted_peak_bytes == report.measured_peak_bytes
    assert max(report.max_abs_diff.values()) < 1e-5

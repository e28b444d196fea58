"""The search goes on within the bodies of loops: a part of the step runs in parts itself."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import neaptide
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ops import registry
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.choices import levels_of
from neaptide.planner.variants.estimate import estimates
from planner.variants.variant_search import choices_of_all
from support.catalogue import graph_of
from support.steps import trained

SENTENCES, TOKENS, WIDTH, WORDS = 3, 40, 8, 160


class Tied(nn.Module):
    """Blocks that mix tokens, and wide logits by the words that were looked up."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x).cumsum(1)
        return (self.norm(x) @ self.embed.weight.t()).flatten(0, 1)


def tied_step():
    torch.manual_seed(0)
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    step = trained(optimizer, lambda batch: F.cross_entropy(model(batch[0]), batch[1].flatten()))

    shape = (SENTENCES, TOKENS)
    return step, (torch.randint(0, WORDS, shape), torch.randint(0, WORDS, shape))


@pytest.fixture(scope="module")
def begun():
    """Choices, and the step in three parts of a sentence each, with its pricing."""
    pricing = Pricing(EstimatedCost(get_device("a100-80g"), registry()), registry())
    choices = choices_of_all()
    first = choices.begun(graph_of(tied_step))
    whole = next(c for c in choices.after(first) if c.regions[0].kind == "step")
    return choices, choices.taken(whole, 2), pricing


@pytest.fixture(scope="module")
def plan(begun):
    """Of the step that is in parts to begin with."""
    step, batch = tied_step()
    # Time is no limit: what it takes depends on the machine.
    budget = neaptide.Budget(None, latency=3600.0)
    rewrites = begun[1].rewrites
    limits = {"time_limit_s": None, "work_limit": 2000}
    return neaptide.plan(step, batch, budget=budget, numerics="close", rewrites=rewrites, **limits)


@pytest.mark.slow
def test_a_part_of_the_step_runs_in_parts(plan):
    program = plan.programs[0]
    within = [rewrite for rewrite in program.rewrites if rewrite.within]
    assert "fission" in [rewrite.rule for rewrite in within]
    first, *others = program.parts.tried
    best = min(tried.peak_bytes for tried in others if " in each part in " in tried.label)
    assert program.predictions.peak_with_workspace_bytes <= best < 0.8 * first.peak_bytes


@pytest.mark.slow
def test_it_runs_as_predicted_and_close_to_eager(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    report = neaptide.run(tied_step, str(tmp_path / "plan.json"), verify=True)
    assert report.predicted_peak_bytes == report.measured_peak_bytes
    assert max(report.max_abs_diff.values()) < 1e-5


def test_what_is_chosen_within_a_body_is_a_rewrite_of_it(begun):
    choices, variant, _ = begun
    found = [choice for choice in choices.after(variant) if choice.within]
    assert {choice.within for choice in found} == {p.within for p in levels_of(variant.graph) if p.within}
    taken = [made for choice in found if (made := choices.taken(choice, 2)) is not None]
    assert taken
    for made in taken:
        assert len(list(levels_of(made.graph))) > len(list(levels_of(variant.graph)))
        assert made.rewrites[: len(variant.rewrites)] == variant.rewrites
        assert all(rewrite.within for rewrite in made.rewrites[len(variant.rewrites) :])


@pytest.mark.slow
def test_estimates_of_parts_of_parts_are_near(begun):
    choices, variant, pricing = begun
    looked = estimates(variant, [c for c in choices.after(variant) if c.within], pricing)
    compared = 0
    for estimate in looked:
        made = choices.taken(estimate.choice, estimate.parts)
        if made is not None:
            exact = baseline(pricing.problem(made.graph)).peak_with_workspace_bytes
            assert estimate.peak_bytes == pytest.approx(exact, rel=0.15)
            compared += 1
    assert compared > 3

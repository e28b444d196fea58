"""Each join has a price of its own, and what was decided for one program is decided again for the next."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.outcome import Limits
from neaptide.planner.strategies.program_order import baseline
from neaptide.planner.variants.merges import followed, joins, without_joins
from neaptide.planner.variants.variant import Decision
from neaptide.policy.prepared_step import prepare
from planner.variants.variant_search import PRICING, choices_of_all, searched
from support.catalogue import graph_of
from support.steps import trained


class TwoLevels(nn.Module):
    """A U-Net of two levels: the join above is large, the one below is of small pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.below = nn.Conv2d(16, 16, 3, padding=1)
        self.back, self.last = nn.Conv2d(32, 8, 3, padding=1), nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        top = torch.relu(self.first(x))
        middle = torch.relu(self.second(F.max_pool2d(top, 8)))
        up = F.interpolate(torch.relu(self.below(F.max_pool2d(middle, 2))), scale_factor=2)
        up = torch.relu(self.back(torch.cat([middle, up], 1)))
        return self.last(torch.cat([top, F.interpolate(up, scale_factor=8)], 1))


def step_and_batch(size=128):
    torch.manual_seed(0)
    model = TwoLevels()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    step = trained(optimizer, lambda x: model(x).square().mean())
    return step, torch.randn(8, 3, size, size)


def test_each_join_costs_what_doing_without_it_takes_longer():
    graph, choices = graph_of(step_and_batch), choices_of_all()
    begun = choices.begun(graph)
    below, above = joins(begun, choices, PRICING.problem)
    assert above.nbytes == 8 * 16 * 128 * 128 * 4
    assert below.nbytes == 8 * 32 * 16 * 16 * 4
    assert below.seconds / below.nbytes > above.seconds / above.nbytes
    before = PRICING.problem(begun.graph).baseline_seconds
    for some in ([below], [above], [below, above]):
        apart = without_joins(begun, choices, [join.name for join in some])
        left = [join.name for join in joins(apart, choices, PRICING.problem)]
        assert left == [join.name for join in (below, above) if join not in some]
        longer = PRICING.problem(apart.graph).baseline_seconds - before
        assert longer == pytest.approx(sum(join.seconds for join in some), abs=1e-9)


@pytest.mark.slow
def test_joins_are_made_after_all_where_their_time_is_worth_more():
    graph = graph_of(step_and_batch)
    choices = choices_of_all()
    _, wide = joins(choices.begun(graph), choices, PRICING.problem)
    before = baseline(PRICING.problem(graph))
    budget = Budget("min", latency=before.seconds * 1.05)
    found = searched(graph, budget, Limits(None, 1500), only=lambda _: False)
    both, above = (
        [(tried.peak_bytes, tried.seconds) for tried in found.tried if tried.label.startswith(label)]
        for label in ("convolutions of pieces, then", "convolutions of pieces at 1 of 2 joins")
    )
    assert min(above) < min(both)
    made = found.found.program.predictions
    assert (made.peak_with_workspace_bytes, made.seconds) == min(above)
    assert [rewrite.rule for rewrite in found.variant.rewrites].count("concat_before_convolution") == 1
    (apart,) = (decision.names for decision in found.variant.decisions)
    assert apart == (wide.name,)


def test_what_was_decided_is_decided_again_for_the_same_graph():
    choices = choices_of_all()
    begun = without_joins(choices.begun(graph_of(step_and_batch)), choices)
    for choice in choices.after(begun)[:6]:
        variant = choices.taken(choice, 2)
        if variant is not None:
            again = followed(choices.begun(graph_of(step_and_batch)), variant.decisions, choices)
            assert again.decisions == variant.decisions
            assert again.graph == variant.graph


def test_what_is_not_found_again_is_left_out():
    choices = choices_of_all()
    begun = choices.begun(graph_of(step_and_batch))
    unknown = Decision("what nobody has in 2 parts", 1)
    assert followed(begun, [unknown], choices) == begun
    both = followed(begun, [unknown, Decision("", names=("no such join",))], choices)
    assert both.rewrites == begun.rewrites


@pytest.mark.slow
def test_the_first_step_is_rewritten_like_the_usual_one():
    step, batch = step_and_batch(64)
    prepared = prepare(step, (batch,), device="rtx3090")
    assert len(prepared.captured.programs) == 2
    options = Ask(Budget(None, latency="+20%"), limits=Limits(None, 300), numerics="close")
    made = prepared.plan(options)
    usual, first = made.variant.graphs
    assert usual.decisions
    assert [d.label for d in first.decisions] == [d.label for d in usual.decisions]
    assert [r.rule for r in first.rewrites if r.rule == "fission"] == [
        r.rule for r in usual.rewrites if r.rule == "fission"
    ]

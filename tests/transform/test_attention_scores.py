"""Attention that is written out: its scores grow with the square of the tokens, and run in parts along the queries."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.schedule import Schedule
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.fission.expand_contract import expand_contract
from planner.variants.variant_search import choices_of_all
from transform.fission_play import assert_close, random_inputs, run_measured

TOKENS, WIDTH, BLOCKS = 48, 8, 2


class Attention(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(WIDTH)
        self.queries, self.keys, self.values = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x):
        h = self.norm(x)
        q, k, v = (
            made(h).unflatten(-1, (self.heads, -1)).transpose(-2, -3) if self.heads > 1 else made(h)
            for made in (self.queries, self.keys, self.values)
        )
        y = torch.softmax(q @ k.transpose(-2, -1) / WIDTH**0.5, -1) @ v
        return x + (y.transpose(-2, -3).flatten(-2) if self.heads > 1 else y)


def graph_of(heads, *batch):
    torch.manual_seed(0)
    model = nn.Sequential(*(Attention(heads) for _ in range(BLOCKS)), nn.Linear(WIDTH, 5))

    def step(x):
        loss = model(x).square().sum()
        loss.backward()
        return loss.detach()

    return capture(step, (torch.randn(*batch, TOKENS, WIDTH),)).steady.graph


@pytest.mark.parametrize(
    ("heads", "batch"),
    [
        (1, ()),
        (2, (1,)),
        pytest.param(1, (1,), marks=pytest.mark.slow),
        pytest.param(2, (2,), marks=pytest.mark.slow),
    ],
)
def test_scores_and_their_backward_run_in_parts_along_the_queries(heads, batch):
    graph = graph_of(heads, *batch)
    (family,) = expand_contract(graph, 0.0)
    assert len(family) == BLOCKS
    scores = heads * TOKENS * TOKENS * 4 * (batch[0] if batch else 1)
    assert all(made.nbytes >= 3 * scores for made in family)  # products, scaled, and shares
    choices = choices_of_all()
    begun = choices.begun(graph)
    (queries,) = [
        choice
        for choice in choices.after(begun)
        if choice.regions[0].kind == "expand_contract" and choice.length == TOKENS
    ]
    assert len(queries.regions) == 2 * BLOCKS
    inputs = random_inputs(graph)
    expected = run_measured(graph, inputs)
    peaks = [memory_profile(graph, Schedule.program_order(graph)).peak_bytes]
    for parts in (5, TOKENS):
        made = choices.taken(queries, parts)
        assert made is not None, choices.refusals
        assert_close(run_measured(made.graph, inputs), expected)
        assert any(s.nbytes.constant_value() >= scores for s in graph.storages)
        assert all(s.nbytes.constant_value() < scores for s in made.graph.storages)
        peaks.append(memory_profile(made.graph, Schedule.program_order(made.graph)).peak_bytes)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < 0.5 * peaks[0]

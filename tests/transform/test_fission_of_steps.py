"""Loops placed by hand on captured training steps: the same numbers, fewer bytes, and exactly the predicted ones."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.frontends.state.state_finder import find_state
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.schedule import Schedule
from neaptide.ir.text.parser import parse_graph
from neaptide.ir.text.writer import print_graph
from neaptide.ops import registry
from neaptide.runtime.comparing.verification import compare_records, record_eager, record_planned
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.transform.rewrite import replay
from neaptide.transform.rules import RULES
from support.catalogue import captured_on, graph_of
from support.drawn import examples
from support.step_checks import as_variant
from support.steps import trained
from transform.fission_play import along, assert_same_numbers, edited_step, split, touching

BATCH, ROWS, TOKENS, WORDS = 7, 50, 33, 101


def mlp_step():
    """A step over 7 examples of 50 rows, flattened on the way; the mean loss is a sum and a division after it."""
    model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    step = trained(
        optimizer,
        lambda batch: (
            F.cross_entropy(model(batch[0]).view(-1, 10), batch[1].view(-1), reduction="sum") / (BATCH * ROWS)
        ),
    )
    return step, (torch.randn(BATCH, ROWS, 20), torch.randint(0, 10, (BATCH, ROWS)))


class LanguageModel(nn.Module):
    """One block of causal attention under an embedding that is also the head."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        h = self.embed(tokens)
        q, k, v = (t.view(3, 11, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(h)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(mixed.transpose(1, 2).reshape(3, 11, 16))
        return h.view(TOKENS, 16) @ self.embed.weight.t()


def language_step():
    """A step over 3 sentences of 11 tokens: 33 tokens meet 101 words in the logits."""
    model = LanguageModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(batch):
        tokens, labels = batch
        optimizer.zero_grad()
        logits = model(tokens)
        loss = F.cross_entropy(logits, labels.view(-1), reduction="sum") / TOKENS
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randint(0, WORDS, (3, 11)), torch.randint(0, WORDS, (3, 11)))


def rows_of_mlp(graph):
    return touching(graph, along(graph, BATCH, ROWS)), BATCH, ROWS


def logits_of_language(graph):
    axes = along(graph, TOKENS)
    logits = [v for v in axes if WORDS in [extent.constant_value() for extent in graph.values[v].shape]]
    return touching(graph, logits), TOKENS, 1


CASES = {"mlp": (mlp_step, rows_of_mlp), "logits": (language_step, logits_of_language)}


def placed(name, graph, parts):
    region, length, inner = CASES[name][1](graph)
    return replay(graph, registry(), [split(graph, region, length, parts, inner)], RULES)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=examples(12), deadline=None)
@given(st.data())
def test_a_region_in_any_number_of_parts_makes_the_same_numbers(name, data):
    graph = graph_of(CASES[name][0])
    _, length, _ = CASES[name][1](graph)
    edited = placed(name, graph, data.draw(st.integers(2, length), label="parts"))
    assert_same_numbers(edited.graph, graph)
    check_schedule(edited.graph, Schedule.program_order(edited.graph), registry())
    assert parse_graph(print_graph(edited.graph)) == edited.graph
    assert fingerprint(parse_graph(print_graph(edited.graph))) == fingerprint(edited.graph)


@pytest.mark.parametrize(("name", "parts"), [("mlp", 4), ("logits", 5)])
def test_a_training_step_in_parts_trains_as_eager_does(name, parts):
    make = CASES[name][0]
    torch.manual_seed(0)
    step, batch = make()
    expected = record_eager(step, (batch,), steps=3, seed=1)
    torch.manual_seed(0)
    step, batch = make()
    captured = edited_step(captured_on(make, step, batch), lambda graph: placed(name, graph, parts))
    assert any(node.regions for node in captured.steady.graph.nodes)
    runner = PlannedStep(step, None, as_variant(captured))
    found = compare_records(record_planned(runner, find_state(step), (batch,), steps=3, seed=1), expected)
    assert max(found.max_abs_diff.values()) < 2e-6
    # 7 rows in parts of 2, 33 tokens in parts of 7: the last part is shorter, and sums are taken in another order.
    assert not found.bitwise_equal

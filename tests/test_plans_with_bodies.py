"""A plan whose loop runs in an order of its own: recompute inside a body, stored, checked, run elsewhere as predicted."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.errors import PlanError
from neaptide.outcome import Limits
from neaptide.plans import Plan
from neaptide.policy.plan_matching import matched
from neaptide.policy.prepared_step import PreparedStep
from neaptide.runtime.steps.capturing import capture
from support.damaged_files import edited
from support.run_elsewhere import run_elsewhere
from support.together import together
from transform.fission_play import along, split, touching

SENTENCES, WORDS_EACH, KNOWN_WORDS, WIDTH = 7, 11, 101, 16  # in 3 parts of 3, 3 and 1 sentences
ADD = "neaptide.add"
DEVICE = "a100-80g"  # numbers that are there at once


class Block(nn.Module):
    """Causal attention and a layer of its own, each added to what comes in."""

    def __init__(self):
        super().__init__()
        self.before, self.behind = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, h):
        q, k, v = (
            t.view(-1, WORDS_EACH, 2, 8).transpose(1, 2) for t in self.qkv(self.before(h)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(mixed.transpose(1, 2).reshape(-1, WORDS_EACH, WIDTH))
        return h + self.wide(self.behind(h))


def language_step():
    """A step of two blocks between an embedding and the same as the head."""
    torch.manual_seed(0)
    embed, blocks = nn.Embedding(KNOWN_WORDS, WIDTH), nn.Sequential(Block(), Block())
    nn.init.normal_(embed.weight, std=0.1)
    optimizer = torch.optim.SGD([*embed.parameters(), *blocks.parameters()], lr=0.1)

    def step(batch):
        words, labels = batch
        optimizer.zero_grad()
        logits = blocks(embed(words)) @ embed.weight.t()
        loss = F.cross_entropy(logits.view(-1, KNOWN_WORDS), labels.view(-1), reduction="sum")
        loss = loss / (SENTENCES * WORDS_EACH)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, tuple(torch.randint(0, KNOWN_WORDS, (SENTENCES, WORDS_EACH)) for _ in range(2))


@pytest.fixture(scope="module")
def captured():
    step, batch = language_step()
    return capture(step, (batch,))


@pytest.fixture(scope="module")
def found(captured):
    graph = captured.steady.graph
    axes = along(graph, SENTENCES, WORDS_EACH)
    loop = split(graph, touching(graph, axes), SENTENCES, 3, WORDS_EACH)
    options = Ask(Budget("min"), limits=Limits(time_s=None, work=200), rewrites=(loop,))
    return PreparedStep(captured, device=DEVICE).plan(options)


def loop_and_order(found):
    (order,) = found.plan.programs[0].bodies
    (loop,) = order.loops
    return found.variant.graphs[0].graph.nodes[loop], order


def test_a_body_recomputes_within_its_own_budget(captured, found):
    node, order = loop_and_order(found)
    body = node.regions[0].body
    assert len(order.sequence) > len(body.nodes)
    graph = found.variant.graphs[0].graph
    pricing = PreparedStep(captured, device=DEVICE).pricing(graph)
    bodies = found.variant.graphs[0].schedule.bodies
    least, written = (pricing.prices(graph, b).workspace[node.id] for b in (bodies, {}))
    assert least <= 0.6 * written
    again, once = (pricing.prices(graph, b).seconds[node.id] for b in (bodies, {}))
    assert again > once
    made = found.plan.programs[0].predictions
    assert made.seconds >= sum(pricing.prices(graph, bodies).seconds) * (1 - 1e-9)


@pytest.mark.slow
def test_it_runs_in_another_process_as_predicted(found, tmp_path):
    found.plan.save(tmp_path / "plan.json")
    differences, predicted, measured = run_elsewhere(
        "test_plans_with_bodies", "language_step", tmp_path / "plan.json"
    )
    assert max(differences.values()) < 1e-5
    made = found.plan.programs[0].predictions
    assert predicted == measured == made.peak_bytes
    assert predicted < made.baseline_peak_bytes


def refusal(found, captured, path, value):
    text = edited(found.plan, (f"bodies 0 {path}", value))
    with pytest.raises(PlanError) as raised:
        matched(Plan.from_json(text), PreparedStep(captured), 0.05)
    assert "\n" not in raised.value.what
    return raised.value.what


@together(
    ("path", "change"),
    [
        ("sequence", lambda sequence, body: [*sequence, len(body.nodes)]),
        ("sequence", lambda sequence, _: [*sequence[:-1], -1]),
        ("sequence", lambda sequence, _: [node for node in sequence if node != sequence[-1]]),
        ("sequence", lambda sequence, body: [*sequence, next(n.id for n in body.nodes if n.op == ADD)]),
        ("sequence", lambda sequence, _: sequence[::-1]),
        ("loops", lambda loops, _: [loops[0] - 1]),
        ("loops", lambda *_: [10**6]),
        ("loops", lambda *_: []),
        ("loops", lambda loops, _: [*loops, 0]),
    ],
    ids=[
        *("unknown node", "negative node", "missing node", "doubled addition", "used before it is made"),
        *("wrong loop", "loop that is not there", "no loop", "loop in the body that is none"),
    ],
)
def test_an_edited_body_is_refused_with_one_sentence(found, captured, path, change):
    body = loop_and_order(found)[0].regions[0].body
    told = refusal(found, captured, path, lambda there: change(there, body))
    assert re.search(r"steady\.bodies|programs\[0\]\.bodies", told)


def test_a_body_in_another_legal_order_is_refused_for_its_bytes(found, captured):
    nodes = loop_and_order(found)[0].regions[0].body.nodes
    told = refusal(found, captured, "sequence", list(range(len(nodes))))
    assert "steady.predictions.peak_bytes" in told

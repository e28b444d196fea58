"""Random draws of a step in parts: drawn whole and in eager's order, so that numbers and the generator are eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.text.writer import print_graph
from neaptide.ops import registry
from neaptide.planner.variants.choices import Choices
from neaptide.runtime.comparing.verification import GROUPS, compare_records, record_eager, record_planned
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.transform.rewrite import apply_rule
from neaptide.transform.rules import RULES
from support.step_checks import as_variant
from support.steps import trained
from support.together import together
from transform.fission_play import edited_step

SEED, STEPS, PARTS = 1, 2, 3


def nothing_against(_edited):
    return None


class Perceptron(nn.Module):
    """Two hidden layers with dropout after each, and a wide head."""

    def __init__(self, drop):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 64), nn.Linear(64, 16)])
        self.head, self.drop = nn.Linear(16, 60), drop

    def forward(self, x):
        for layer in self.layers:
            x = self.drop(F.gelu(layer(x)))
        return self.head(x)


class Attention(nn.Module):
    """Attention that drops weights, and then results."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.drop = nn.Linear(8, 24), nn.Linear(8, 60), nn.Dropout(0.2)

    def forward(self, x):
        q, k, v = (t.view(7, 6, 2, 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
        return self.drop(self.out(mixed.transpose(1, 2).reshape(7, 6, 8)))


def fused(x):
    return torch.native_dropout(x, 0.3, True)[0]


MODELS = {
    "dropout": lambda: (Perceptron(nn.Dropout(0.3)), (7,)),
    "fused": lambda: (Perceptron(fused), (7,)),
    "attention": lambda: (Attention(), (7, 6)),
}


def training(name):
    torch.manual_seed(0)
    model, rows = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    step = trained(optimizer, lambda x, y: F.cross_entropy(model(x).flatten(0, -2), y.flatten()))
    return step, (torch.randn(*rows, 8), torch.randint(0, 60, rows))


def drawn(graph):
    """Elements of the masks that a program draws, in its order."""
    made = [graph.values[node.outputs[-1]] for node in graph.nodes if node.effects.rng is not None]
    return [tuple(extent.constant_value() for extent in value.shape) for value in made]


@together(
    ("name", "kind", "least"),
    [
        ("dropout", "step", 20),
        ("dropout", "suffix", 5),
        ("fused", "step", 20),
        ("fused", "suffix", 5),
        ("attention", "step", 40),
    ],
    quick=(1, 2, 4),
)
def test_a_step_in_parts_draws_what_eager_draws(name, kind, least):
    step, batch = training(name)
    expected = record_eager(step, batch, steps=STEPS, seed=SEED)

    def in_parts(graph):
        choices = Choices(registry(), nothing_against)
        found = choices.after(choices.begun(graph))
        wanted = max((c for c in found if c.regions[0].kind == kind), key=lambda choice: choice.nbytes)
        variant = choices.taken(wanted, PARTS)
        assert variant is not None, choices.refusals
        (loop,) = [node for node in variant.graph.nodes if node.regions]
        body = loop.regions[0].body
        assert len(body.nodes) >= least
        assert not drawn(body)
        assert drawn(variant.graph) == drawn(graph) != []
        return variant.edited

    step, batch = training(name)
    runner = PlannedStep(step, None, as_variant(edited_step(capture_step(step, batch), in_parts)))
    made = record_planned(runner, find_state(step), batch, steps=STEPS, seed=SEED)
    difference = compare_records(made, expected).max_abs_diff
    assert set(difference) == set(GROUPS)
    assert max(difference.values()) < 2e-6
    assert made.random_states == expected.random_states != ()
    assert made.random_states[0] != bytes(torch.Generator().manual_seed(SEED).get_state().tolist())


@pytest.mark.parametrize("name", MODELS)
def test_without_parts_nothing_is_drawn_by_itself(name):
    step, batch = training(name)
    graph = capture_step(step, batch).steady.graph
    choices = Choices(registry(), nothing_against)
    begun = choices.begun(graph)
    rules = [rewrite.rule for rewrite in begun.rewrites]
    assert ("split_dropout" in rules) == (name == "fused")
    whole = choices.without_parts(begun)
    assert (whole.graph == graph) if name == "fused" else (whole is begun)


def test_masks_drawn_by_themselves_keep_every_bit_of_a_step():
    step, batch = training("fused")
    expected = record_eager(step, batch, steps=STEPS, seed=SEED)
    step, batch = training("fused")
    drawn_first = edited_step(
        capture_step(step, batch),
        lambda graph: apply_rule(graph, registry(), RULES["split_dropout"]).edited,
    )
    assert "dropout.default" not in print_graph(drawn_first.steady.graph)
    runner = PlannedStep(step, None, as_variant(drawn_first))
    made = record_planned(runner, find_state(step), batch, steps=STEPS, seed=SEED)
    assert set(compare_records(made, expected).max_abs_diff.values()) == {0.0}
    assert made.random_states == expected.random_states != ()

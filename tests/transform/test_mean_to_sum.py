"""Means taken as sums and divided: the same numbers up to rounding, whatever the loss, its weights and what it ignores."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.frontends.state.state_finder import find_state
from neaptide.ops import registry
from neaptide.runtime.comparing.verification import compare_records, record_eager, record_planned
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.transform.rewrite import apply_rule
from neaptide.transform.rules import RULES
from neaptide.transform.rules.mean_to_sum import takes_mean
from support.catalogue import captured_on, graph_of
from support.step_checks import as_variant
from support.steps import trained
from support.together import together
from transform.fission_play import assert_same_numbers, edited_step

RULE = RULES["mean_to_sum"]
CLASSES, ROWS = 5, 6
ON_OUTPUTS = {
    "mse": F.mse_loss,
    "smooth_l1": lambda y, t: F.smooth_l1_loss(y, t, beta=0.5),
    "huber": lambda y, t: F.huber_loss(y, t, delta=0.7),
    "soft_margin": lambda y, t: F.soft_margin_loss(y, t.sign()),
    "binary": lambda y, t: F.binary_cross_entropy(y.sigmoid(), t.sigmoid()),
    "binary_weighted": lambda y, t: F.binary_cross_entropy(y.sigmoid(), t.sigmoid(), weight=t.abs()),
    "binary_with_logits": lambda y, t: F.binary_cross_entropy_with_logits(y, t.sigmoid()),
    "l1": F.l1_loss,
    "mean": lambda y, t: (y - t).square().mean(),
    "mean_of_rows": lambda y, t: (y - t).square().mean(1).mean(0),
}
WEIGHTS = torch.arange(1.0, CLASSES + 1)
ON_CLASSES = {
    "classes": F.cross_entropy,
    "ignored": lambda y, t: F.cross_entropy(y, t, ignore_index=2),
    "weighted": lambda y, t: F.cross_entropy(y, t, weight=WEIGHTS, ignore_index=0),
    "smoothed": lambda y, t: F.cross_entropy(y, t, label_smoothing=0.1),
    "pixels": lambda y, t: F.cross_entropy(y.view(2, 3, CLASSES, 1).transpose(1, 2), t.view(2, 3, 1)),
}


def make(name):
    """A training step of a linear layer with one of the losses."""
    torch.manual_seed(0)
    model = nn.Linear(4, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    of = (ON_OUTPUTS | ON_CLASSES)[name]

    step = trained(optimizer, lambda batch: of(model(batch[0]), batch[1]))

    labels = torch.tensor([0, 2, 4, 2, 1, 3]) if name in ON_CLASSES else torch.randn(ROWS, CLASSES)
    return step, (torch.randn(ROWS, 4), labels)


def without_means(graph):
    edited = apply_rule(graph, registry(), RULE).edited
    assert not any(takes_mean(node) for node in edited.graph.nodes)
    return edited


@together(
    "name",
    ON_OUTPUTS | ON_CLASSES,
    quick=("mse", "huber", "binary_with_logits", "mean_of_rows", "weighted", "smoothed", "pixels"),
)
def test_a_step_trains_as_eager_does(name):
    step, batch = make(name)
    expected = record_eager(step, (batch,), steps=2, seed=1)
    step, batch = make(name)
    captured = captured_on(partial(make, name), step, batch)
    assert any(takes_mean(node) for node in captured.steady.graph.nodes)
    runner = PlannedStep(step, None, as_variant(edited_step(captured, without_means)))
    found = compare_records(record_planned(runner, find_state(step), (batch,), steps=2, seed=1), expected)
    assert max(found.max_abs_diff.values()) < 1e-6


@pytest.mark.parametrize("name", ["mse", "ignored", "weighted"])
def test_it_takes_the_bytes_that_are_predicted(name):
    graph = graph_of(partial(make, name))
    assert_same_numbers(without_means(graph).graph, graph)

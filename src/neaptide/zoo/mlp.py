"""Multi-layer perceptron with ReLU; the smallest step that has every part of training."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from neaptide.zoo.model import Batch, Step
from neaptide.zoo.training import (
    classification_loss,
    construction,
    make_optimizer,
    make_step,
    prepared,
    random_integers,
    random_normal,
)


def make_mlp(layers: int, features: int, width: int, classes: int) -> nn.Sequential:
    """`layers` linear layers in all, the last one giving the class scores."""
    widths = [features] + [width] * (layers - 1)
    hidden: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        hidden += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], classes))


def build(
    *,
    layers: int,
    features: int,
    width: int,
    classes: int,
    batch: int,
    lr: float,
    precision: str,
    seed: int,
    device: str,
) -> tuple[Step, Batch]:
    """A step of SGD with momentum on made-up feature vectors."""
    with construction(seed, device):
        model = make_mlp(layers, features, width, classes)
    prepared(model, device, precision)
    optimizer = make_optimizer("sgd", model, lr)
    data = {
        "images": random_normal((batch, features), device, precision),
        "labels": random_integers(classes, (batch,), device),
    }
    return make_step(model, optimizer, classification_loss, device, precision), data

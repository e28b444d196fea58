"""Multi-layer perceptrons and what is put into them: activations, norms, dropout, regularisers, shapes of code."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family, descend, trained

FAMILY = Family("dense")


@FAMILY.add("activations")
def mlp_every_activation():
    activations = [
        nn.ReLU(),
        nn.LeakyReLU(),
        nn.ELU(),
        nn.SELU(),
        nn.CELU(),
        nn.GELU(),
        nn.GELU("tanh"),
        nn.SiLU(),
        nn.Mish(),
        nn.Softplus(),
        nn.Softsign(),
        nn.Hardtanh(),
        nn.Hardswish(),
        nn.Hardsigmoid(),
        nn.LogSigmoid(),
        nn.Tanhshrink(),
        nn.Softshrink(),
        nn.Hardshrink(),
        nn.Sigmoid(),
        nn.PReLU(),
        nn.PReLU(8),
        nn.ReLU6(),
        nn.Threshold(0.1, 0.0),
        nn.Softmax(-1),
        nn.LogSoftmax(-1),
        nn.Softmin(-1),
        nn.RReLU(),
    ]
    model = nn.Sequential(
        *[layer for one in activations for layer in (nn.Linear(8, 8), one)], nn.Linear(8, 1)
    )
    return trained(lambda batch: model(batch).square().mean(), model), torch.randn(64, 8)


@FAMILY.add("dropout", "random")
def every_dropout():
    first, second = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
    line, head = nn.Conv1d(6, 6, 3), nn.Linear(6, 2)
    kinds = nn.ModuleList(
        [
            nn.Dropout(0.1),
            nn.Dropout2d(0.3),
            nn.Dropout1d(0.3),
            nn.AlphaDropout(0.2),
            nn.FeatureAlphaDropout(0.2),
        ]
    )
    parameters = [*first.parameters(), *second.parameters(), *line.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters)

    def step(batch):
        x = kinds[0](F.relu(first(batch)))
        x = kinds[1](F.relu(second(x)))
        x = kinds[4](x)
        x = kinds[2](F.relu(line(x.flatten(2))))
        x = kinds[3](head(x.mean(-1)))
        x = F.dropout(x, 0.5, training=True)
        loss = x.square().sum()
        descend(optimizer, loss, clears_first=True)
        return {"loss": loss.detach()}

    return step, torch.randn(3, 2, 6, 6)


@FAMILY.add("init")
def maxout_with_noisy_linear():
    weight = nn.Parameter(torch.empty(3, 8, 6))
    mean, spread = nn.Parameter(torch.randn(4, 8) / 3), nn.Parameter(torch.full((4, 8), 0.017))
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5))

    def loss_of(x):
        hidden = torch.einsum("bi,koi->bko", x, weight).amax(1)
        row, column = (torch.randn(n).sign() * torch.randn(n).abs().sqrt() for n in (4, 8))
        out = F.linear(hidden, mean + spread * torch.outer(row, column))
        return out.square().mean()

    return trained(loss_of, weight, mean, spread), torch.randn(70, 6)


@FAMILY.add("bilinear", "einsum")
def bilinear_and_factorisation_machine():
    bilinear = nn.Bilinear(5, 6, 4)
    linear, factors = nn.Linear(11, 1), nn.Parameter(torch.randn(11, 3) * 0.1)

    def loss_of(batch):
        left, right, target = batch
        x = torch.cat([left, right], 1)
        pairs = ((x @ factors).square() - x.square() @ factors.square()).sum(1, keepdim=True) / 2
        return (
            F.binary_cross_entropy_with_logits(linear(x) + pairs, target)
            + bilinear(left, right).square().mean()
        )

    return trained(loss_of, bilinear, linear, factors), (
        torch.randn(80, 5),
        torch.randn(80, 6),
        torch.rand(80, 1).round(),
    )


@FAMILY.add("lazy", "shape")
def lazy_linear_after_flatten_and_unflatten():
    model = nn.Sequential(
        nn.Unflatten(1, (4, 3)), nn.Flatten(), nn.LazyLinear(9), nn.ReLU(), nn.LazyLinear(2)
    )
    model(torch.zeros(1, 12))  # materialise
    return trained(lambda x: model(x).var(dim=0).sum(), model), torch.randn(64, 12)


@FAMILY.add("checkpoint", "reentrant")
def checkpoint_sequential():
    model: Any = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(6)])

    def loss_of(x):
        x = x.requires_grad_()
        return torch.utils.checkpoint.checkpoint_sequential(model, 3, x, use_reentrant=True).square().mean()

    return trained(loss_of, model), torch.randn(32, 16)

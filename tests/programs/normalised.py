"""Norms and parametrisations: what rescales activations and weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from programs.program import Family, trained

FAMILY = Family("normalised")


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(5))
        self.norms = nn.ModuleList(
            [
                nn.LayerNorm(12),
                nn.RMSNorm(12),
                nn.GroupNorm(3, 12),
                nn.BatchNorm1d(12),
                nn.LayerNorm(12, elementwise_affine=False),
            ]
        )

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + F.gelu(norm(layer(x)))
        return x


@FAMILY.add("norm")
def residual_norms():
    model = Norms()
    return trained(lambda batch: F.mse_loss(model(batch["x"]), batch["y"]), model), {
        "x": torch.randn(48, 12),
        "y": torch.randn(48, 12),
    }


@FAMILY.add("norm", "frozen")
def batch_norm_in_eval_while_training():
    trunk = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU()).eval()
    head = nn.Linear(10, 2)
    optimizer = torch.optim.SGD(
        [*trunk.parameters(), *head.parameters()], lr=0.01, nesterov=True, momentum=0.8
    )

    def step(x, loss_fn=F.soft_margin_loss):
        optimizer.zero_grad()
        loss = loss_fn(head(trunk(x)), torch.ones(72, 2))
        loss.backward()
        optimizer.step()
        return float(loss)

    return step, torch.randn(72, 6)


@FAMILY.add("parametrization")
def weight_norm():
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(6, 8)),
        nn.Tanh(),
        parametrizations.weight_norm(nn.Linear(8, 2), dim=None),
    )
    return trained(lambda x: model(x).square().mean(), model), torch.randn(80, 6)


@FAMILY.add("parametrization", "buffers")
def spectral_norm():
    model = nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(6, 8)),
        nn.LeakyReLU(0.2),
        parametrizations.spectral_norm(nn.Linear(8, 1)),
    )
    return trained(lambda x: F.softplus(-model(x)).mean(), model), torch.randn(80, 6)


@FAMILY.add("parametrization", "linalg", "data dependent bytes")
def orthogonal_weight_by_matrix_exp():
    model = nn.Sequential(
        parametrizations.orthogonal(nn.Linear(6, 6), orthogonal_map="matrix_exp"), nn.Tanh(), nn.Linear(6, 2)
    )
    return trained(lambda x: model(x).square().mean(), model), torch.randn(80, 6)

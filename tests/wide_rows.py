"""A step whose activations are much wider than its weights: parts are worth most there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def trained(optimizer, loss_of):
    """A training step: gradients of a loss of what it is called with, and an update."""

    def step(*batch):
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def rows_step():
    """Wide activations over 24 rows, few weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    step = trained(
        optimizer, lambda batch: F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())
    )
    return step, (torch.randn(24, 10, 8), torch.randint(0, 3, (24, 10)))


def wide_head(classes=512):
    """A step whose forward makes what its backward reads, around a wide loss that can run in parts: it is a sum."""
    torch.manual_seed(0)
    layers, head = nn.ModuleList(nn.Linear(64, 64) for _ in range(6)), nn.Linear(64, classes)
    optimizer = torch.optim.SGD([*layers.parameters(), *head.parameters()], lr=0.1)

    def step(batch):
        x, y = batch
        optimizer.zero_grad()
        for layer in layers:
            x = x + F.gelu(layer(x))
        loss = F.cross_entropy(head(x), y, reduction="sum") / 96
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(96, 64), torch.randint(0, classes, (96,)))

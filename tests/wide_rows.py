"""A step whose activations are much wider than its weights: parts are worth most there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def rows_step():
    """Wide activations over 24 rows, few weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        x, y = batch
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, (torch.randn(24, 10, 8), torch.randint(0, 3, (24, 10)))

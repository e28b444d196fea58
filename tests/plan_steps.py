"""Small steps that saved plans are for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def small_step() -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
    """Three layers and plain gradient descent: the program of `golden/plans/format_1.json`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    return _descent(model), torch.randn(64, 8)


class Projections(nn.Module):
    """Three projections of one activation, which autocast casts for each of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.norm(x)
        weights = torch.softmax(self.query(seen) @ self.key(seen).transpose(-1, -2), -1)
        return x + weights @ self.value(seen)


def autocast_step() -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
    """Attention under autocast: equal casts stay alive side by side."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Projections(32) for _ in range(2)))
    return _descent(model, autocast=True), torch.randn(4, 48, 32)


def _descent(model: nn.Module, *, autocast: bool = False) -> Callable[[torch.Tensor], Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step

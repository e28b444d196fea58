"""Training steps that tests of several rooms plan and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from frontends import steps

QUICK: dict[str, Any] = {"time_limit_s": None, "work_limit": 300}


def deep(width: int = 16, rows: int = 256):
    """Activations that matter: deep, narrow, a large batch."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width, bias=False), nn.GELU())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, steps.simple(model, optimizer), torch.randn(rows, width)


def deep_factory():
    _, _, step, batch = deep()
    return step, batch


def dropout_factory():
    """Dropout, a batch norm and a state that the first step makes: repetitions, copies and two programs."""
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.5))]
    model = nn.Sequential(nn.BatchNorm1d(16), *layers)
    return steps.simple(model, torch.optim.AdamW(model.parameters(), lr=0.01)), torch.randn(256, 16)


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

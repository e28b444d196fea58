"""A step whose activations matter, and limits of a short search, for tests of the public functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from frontends import steps

QUICK: dict[str, Any] = {"time_limit_s": None, "work_limit": 300}


def deep(width: int = 16, rows: int = 256):
    """Activations that matter: deep, narrow, a large batch."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU())]
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

"""Small training steps, written as a user would write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Step = Callable[..., Any]


def update(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """What ends most training steps."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def batch():
    return torch.randn(6, 4)


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def simple(model, optimizer, loss_of=lambda out: out.square().mean()):
    def step(x):
        return update(loss_of(model(x)), optimizer)

    return step


def mlp(**options: Any) -> tuple[Step, torch.Tensor]:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    return simple(
        model, torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, **options})
    ), torch.randn(5, 4)


def adamw(**options: Any) -> tuple[Step, torch.Tensor]:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
    return simple(model, torch.optim.AdamW(model.parameters(), **{"lr": 0.01, **options})), torch.randn(5, 4)


def batch_norm() -> tuple[Step, torch.Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 4, 3),
        nn.BatchNorm2d(4),
    )
    return simple(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)), torch.randn(2, 3, 8, 8)


class Dropped(nn.Module):
    def __init__(self, *, reentrant: bool | None) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh()) for _ in range(3)
        )
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            plain = self.reentrant is None
            x = block(x) if plain else checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def dropout(*, reentrant: bool | None = None) -> tuple[Step, torch.Tensor]:
    model = Dropped(reentrant=reentrant)
    return simple(model, torch.optim.SGD(model.parameters(), lr=0.1)), torch.randn(4, 8)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 7, num_layers=2, batch_first=True)
        self.head = nn.Linear(7, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(tokens))[0])


def lstm() -> tuple[Step, torch.Tensor]:
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        return update(functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()), optimizer)

    return step, torch.randint(0, 11, (3, 5))


def tied() -> tuple[Step, torch.Tensor]:
    embedding, head = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, nn.Tanh(), head)
    return simple(model, torch.optim.AdamW(model.parameters(), lr=0.01)), torch.randint(0, 11, (3, 5))

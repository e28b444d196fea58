"""Norms under autocast: float32 weights and statistics, activations in bfloat16 and float16."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from programs.program import Factory, Family, descending

FAMILY = Family("mixed_norms")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class LocalResponse(nn.Module):
    def forward(self, x):
        return F.local_response_norm(x, 3)


class SpatialLayerNorm(nn.Module):
    """Over channels, which are moved to the end and back, as in ConvNeXt."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


ROWS: dict[str, Callable[[], nn.Module]] = {
    "layer": lambda: nn.LayerNorm(12),
    "layer_without_weights": lambda: nn.LayerNorm(12, elementwise_affine=False),
    "layer_without_bias": lambda: nn.LayerNorm(12, bias=False),
    "rms": lambda: nn.RMSNorm(12),
    "batch_1d": lambda: nn.BatchNorm1d(12),
    "batch_1d_without_statistics": lambda: nn.BatchNorm1d(12, track_running_stats=False),
    "group_of_rows": lambda: nn.GroupNorm(3, 12),
}
PICTURES: dict[str, Callable[[], nn.Module]] = {
    "batch_2d": lambda: nn.BatchNorm2d(8),
    "batch_2d_in_eval": lambda: nn.BatchNorm2d(8).eval(),
    "group": lambda: nn.GroupNorm(4, 8),
    "group_of_one": lambda: nn.GroupNorm(1, 8),
    "instance": lambda: nn.InstanceNorm2d(8, affine=True),
    "instance_with_statistics": lambda: nn.InstanceNorm2d(8, track_running_stats=True),
    "local_response": LocalResponse,
    "spatial_layer": lambda: SpatialLayerNorm(8),
}
WEIGHTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
}


def _rows(norm, dtype):
    layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))
    norms = nn.ModuleList(norm() for _ in range(3))
    optimizer = torch.optim.AdamW([*layers.parameters(), *norms.parameters()], lr=1e-3)

    def loss_of(batch):
        with torch.autocast("cpu", dtype):
            x = batch
            for layer, normalise in zip(layers, norms, strict=True):
                x = x + F.gelu(normalise(layer(x)))
            return F.mse_loss(x, batch.flip(0))

    return descending(optimizer, loss_of), torch.randn(64, 12)


def _pictures(norm, dtype):
    stem = nn.Conv2d(3, 8, 3, padding=1)
    blocks = nn.ModuleList(nn.Sequential(norm(), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1)) for _ in range(2))
    optimizer = torch.optim.SGD([*stem.parameters(), *blocks.parameters()], lr=0.01, momentum=0.9)

    def step(batch):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype):
            h = stem(batch)
            for block in blocks:
                h = h + block(h)
            loss = h.mean((2, 3)).float().logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, torch.randn(6, 3, 10, 10)


def _weights(parametrised, dtype):
    layers = nn.Sequential(
        parametrised(nn.Linear(10, 16)),
        nn.Tanh(),
        parametrised(nn.Linear(16, 16)),
        nn.Tanh(),
        nn.Linear(16, 1),
    )
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.05)

    def loss_of(batch):
        with torch.autocast("cpu", dtype):
            return F.softplus(layers(batch)).mean() + F.softplus(-layers(batch.flip(1))).mean()

    return descending(optimizer, loss_of), torch.randn(80, 10)


def _of(build: Callable[..., object], part: Callable[..., nn.Module], dtype: torch.dtype) -> Factory:
    return lambda: build(part, dtype)


for _precision, _dtype in DTYPES.items():
    for _build, _kinds in ((_rows, ROWS), (_pictures, PICTURES), (_weights, WEIGHTS)):
        for _name, _part in _kinds.items():
            FAMILY.put(
                f"{_name}_under_{_precision}", _of(_build, _part, _dtype), "norm", "autocast", _precision
            )

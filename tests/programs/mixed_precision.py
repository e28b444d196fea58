"""Autocast as scripts use it: shared weights, nested and disabled regions, custom functions, scalers, losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import custom_bwd, custom_fwd

from programs.program import Factory, Family, trained

FAMILY = Family("mixed_precision")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def both(*tags: str) -> Callable[[Callable[[torch.dtype], Any]], Callable[[torch.dtype], Any]]:
    """Decorator: programs in bfloat16 and float16, from a function that makes step and batch."""

    def register(make: Callable[[torch.dtype], Any]) -> Callable[[torch.dtype], Any]:
        for precision, dtype in DTYPES.items():
            FAMILY.put(f"{make.__name__}_{precision}", _of(make, dtype), "autocast", precision, *tags)
        return make

    return register


def _of(make: Callable[[torch.dtype], Any], dtype: torch.dtype) -> Factory:
    return lambda: make(dtype)


@both("shared weights", "embedding")
def tied_embedding(dtype):
    table, mix = nn.Embedding(30, 16), nn.Linear(16, 16)

    def loss_of(tokens):
        with torch.autocast("cpu", dtype):
            h = F.silu(mix(table(tokens[:, :-1])))
            logits = F.linear(h, table.weight)
            again = F.linear(mix(h), table.weight)
            return F.cross_entropy((logits + again).flatten(0, 1), tokens[:, 1:].flatten())

    return trained(loss_of, table, mix), torch.randint(0, 30, (8, 9))


@both("nested")
def switched_off_by_a_flag(dtype):
    model = nn.Sequential(nn.Linear(9, 18), nn.Hardswish(), nn.Linear(18, 3))
    flags = {"mixed": True}

    def loss_of(batch):
        with torch.autocast("cpu", dtype, enabled=flags["mixed"]):
            scores = model(batch[0])
        with torch.autocast("cpu", dtype, enabled=not flags["mixed"]):
            return F.cross_entropy(scores.float(), batch[1]) + model[0](batch[0]).abs().mean()

    return trained(loss_of, model), (torch.randn(56, 9), torch.randint(0, 3, (56,)))


class _Scaled(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu")
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.mT, x.mT @ gradient


class _Exact(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        made = x.exp()
        ctx.save_for_backward(made)
        return made

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        (made,) = ctx.saved_tensors
        return gradient * made


@both("custom function")
def custom_functions_that_follow_autocast(dtype):
    layer = nn.Linear(12, 12)

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            h = _Scaled.apply(layer(x), layer.weight)
            return _Exact.apply(0.1 * h).mean() + layer(h).float().square().mean()

    return trained(loss_of, layer), torch.randn(60, 12)


class _Block(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.norm = nn.GroupNorm(2, inside)
        self.first = nn.Conv2d(inside, outside, 3, padding=1)
        self.second = nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1)

    def forward(self, x):
        return self.skip(x) + self.second(F.silu(self.first(F.silu(self.norm(x)))))


@both("unet", "norm")
def diffusion_unet(dtype):
    stem, down, middle = nn.Conv2d(2, 4, 3, padding=1), _Block(4, 8), _Block(8, 8)
    up, head = _Block(12, 4), nn.Conv2d(4, 2, 1)
    timing = nn.Linear(1, 8)

    def loss_of(batch):
        noise = torch.randn_like(batch["x"])
        with torch.autocast("cpu", dtype):
            top = stem(batch["x"] + batch["t"][:, None, None, None] * noise)
            low = down(F.avg_pool2d(top, 2))
            low = middle(low + timing(batch["t"][:, None])[:, :, None, None])
            made = head(up(torch.cat([F.interpolate(low, scale_factor=2), top], 1)))
        return F.mse_loss(made.float(), noise)

    return (
        trained(loss_of, stem, down, middle, up, head, timing),
        {"x": torch.randn(3, 2, 8, 8), "t": torch.rand(3)},
    )


@both("recurrent")
def gru_under_autocast(dtype):
    layers, head = nn.GRU(6, 10, 2, batch_first=True), nn.Linear(10, 6)

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            return F.mse_loss(head(layers(x)[0])[:, :-1], x[:, 1:])

    return trained(loss_of, layers, head), torch.randn(6, 7, 6)


@both("attention", "dropout")
def encoder_under_autocast(dtype):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
    encoder, head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 4)

    def loss_of(batch):
        with torch.autocast("cpu", dtype):
            return F.cross_entropy(head(encoder(batch[0]).mean(1)), batch[1])

    return trained(loss_of, encoder, head), (torch.randn(6, 8, 16), torch.randint(0, 4, (6,)))


@both("cache disabled", "shared weights")
def casts_that_are_not_kept(dtype):
    layer = nn.Linear(16, 16)

    def loss_of(x):
        with torch.autocast("cpu", dtype, cache_enabled=False):
            return layer(torch.tanh(layer(torch.tanh(layer(x))))).float().square().mean()

    return trained(loss_of, layer), torch.randn(66, 16)


@both("adapter")
def low_rank_adapters_on_frozen_weights(dtype):
    class Adapted(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = nn.Linear(16, 16).requires_grad_(requires_grad=False)
            self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)

        def forward(self, x):
            return self.frozen(x) + self.up(self.down(x))

    model = nn.Sequential(Adapted(), nn.ReLU(), Adapted())

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            return F.l1_loss(model(x) + model[0](x), x)

    return trained(loss_of, model), torch.randn(52, 16)

"""Autocast as scripts use it: shared weights, nested and disabled regions, custom functions, scalers, losses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import custom_bwd, custom_fwd
from torch.utils.checkpoint import checkpoint

from programs.program import Factory, Family

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


def descending(loss_of, *modules, rate=1e-2, momentum=0.0):
    """A step of gradient descent on a loss."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=rate, momentum=momentum)

    def step(batch):
        loss = loss_of(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@both("shared weights")
def one_layer_many_times(dtype):
    layer = nn.Linear(20, 20)

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            for _ in range(4):
                x = torch.tanh(layer(x))
        return x.float().square().mean()

    return descending(loss_of, layer, momentum=0.9), torch.randn(72, 20)


@both("shared weights", "embedding")
def tied_embedding(dtype):
    table, mix = nn.Embedding(30, 16), nn.Linear(16, 16)

    def loss_of(tokens):
        with torch.autocast("cpu", dtype):
            h = F.silu(mix(table(tokens[:, :-1])))
            logits = F.linear(h, table.weight)
            again = F.linear(mix(h), table.weight)
            return F.cross_entropy((logits + again).flatten(0, 1), tokens[:, 1:].flatten())

    return descending(loss_of, table, mix, rate=0.1), torch.randint(0, 30, (8, 9))


@both("shared weights", "gan")
def discriminator_on_real_and_fake(dtype):
    maker, judge = nn.Linear(6, 12), nn.Sequential(nn.Linear(12, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
    of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
    of_judge = torch.optim.Adam(judge.parameters(), lr=1e-3)

    def step(batch):
        with torch.autocast("cpu", dtype):
            fake = maker(batch["noise"])
            of_judgement = F.softplus(judge(fake.detach())).mean() + F.softplus(-judge(batch["real"])).mean()
        of_judge.zero_grad()
        of_judgement.backward()
        of_judge.step()
        with torch.autocast("cpu", dtype):
            of_making = F.softplus(-judge(fake)).mean()
        of_maker.zero_grad()
        of_making.backward()
        of_maker.step()
        return of_judgement.detach(), of_making.detach()

    return step, {"noise": torch.randn(40, 6), "real": torch.randn(40, 12)}


@both("nested")
def regions_within_regions(dtype):
    outer, inner, head = nn.Linear(14, 14), nn.Linear(14, 14), nn.Linear(14, 1)

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            h = F.relu(outer(x))
            with torch.autocast("cpu", enabled=False):
                h = F.relu(inner(h.float()))
                with torch.autocast("cpu", dtype):
                    h = inner(outer(h))
            h = outer(h)
        with torch.autocast("cpu", dtype):
            return head(outer(h)).float().square().mean()

    return descending(loss_of, outer, inner, head), torch.randn(64, 14)


@both("nested")
def switched_off_by_a_flag(dtype):
    model = nn.Sequential(nn.Linear(9, 18), nn.Hardswish(), nn.Linear(18, 3))
    flags = {"mixed": True}

    def loss_of(batch):
        with torch.autocast("cpu", dtype, enabled=flags["mixed"]):
            scores = model(batch[0])
        with torch.autocast("cpu", dtype, enabled=not flags["mixed"]):
            return F.cross_entropy(scores.float(), batch[1]) + model[0](batch[0]).abs().mean()

    return descending(loss_of, model), (torch.randn(56, 9), torch.randint(0, 3, (56,)))


@both("decorator")
def decorated_forward(dtype):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(10, 30), nn.Linear(30, 10)

        @torch.autocast("cpu", dtype=dtype)
        def forward(self, x):
            return self.down(F.gelu(self.up(x))) + self.down(F.silu(self.up(x)))

    model = Model()
    return descending(lambda x: (model(x).float() - x).square().mean(), model), torch.randn(48, 10)


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

    return descending(loss_of, layer), torch.randn(60, 12)


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
        descending(loss_of, stem, down, middle, up, head, timing),
        {"x": torch.randn(3, 2, 8, 8), "t": torch.rand(3)},
    )


@both("channels last")
def pictures_with_channels_last(dtype):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8, padding=1),
        nn.GroupNorm(2, 8),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 3, 2, stride=2),
    ).to(memory_format=torch.channels_last)

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            return F.smooth_l1_loss(model(x), x)

    batch = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    return descending(loss_of, model), batch


@both("recurrent")
def gru_under_autocast(dtype):
    layers, head = nn.GRU(6, 10, 2, batch_first=True), nn.Linear(10, 6)

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            return F.mse_loss(head(layers(x)[0])[:, :-1], x[:, 1:])

    return descending(loss_of, layers, head), torch.randn(6, 7, 6)


@both("recurrent", "shared weights")
def lstm_cells_under_autocast(dtype):
    cell, head = nn.LSTMCell(5, 9), nn.Linear(9, 5)

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            carried = None
            loss = x.new_zeros(())
            for now, then in zip(x.unbind(1)[:-1], x.unbind(1)[1:], strict=True):
                carried = cell(now, carried)
                loss = loss + F.mse_loss(head(carried[0]), then)
        return loss

    return descending(loss_of, cell, head), torch.randn(8, 6, 5)


@both("attention")
def multihead_attention_under_autocast(dtype):
    attention, norm = nn.MultiheadAttention(16, 4, batch_first=True), nn.LayerNorm(16)

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            h = norm(x + attention(x, x, x, need_weights=False)[0])
            h, weights = attention(h, x, x)
            return h.float().square().mean() + weights.float().max()

    return descending(loss_of, attention, norm), torch.randn(5, 9, 16)


@both("attention", "dropout")
def encoder_under_autocast(dtype):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
    encoder, head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(16, 4)

    def loss_of(batch):
        with torch.autocast("cpu", dtype):
            return F.cross_entropy(head(encoder(batch[0]).mean(1)), batch[1])

    return descending(loss_of, encoder, head), (torch.randn(6, 8, 16), torch.randint(0, 4, (6,)))


@both("loss")
def losses_that_run_in_full_precision(dtype):
    model = nn.Linear(8, 5)

    def loss_of(batch):
        with torch.autocast("cpu", dtype):
            scores = model(batch["x"])
            target = batch["y"]
            return (
                F.mse_loss(scores, target)
                + F.huber_loss(scores, target)
                + F.binary_cross_entropy_with_logits(scores, target, pos_weight=torch.full((5,), 2.0))
                + F.kl_div(scores.log_softmax(1), target.softmax(1), reduction="batchmean")
                + F.poisson_nll_loss(scores, target)
                + F.soft_margin_loss(scores, torch.ones_like(target))
            )

    return descending(loss_of, model), {"x": torch.randn(50, 8), "y": torch.rand(50, 5)}


@both("loss")
def losses_of_low_precision(dtype):
    model = nn.Linear(8, 5)

    def loss_of(batch):
        with torch.autocast("cpu", dtype):
            scores = model(batch["x"])
        return (
            F.binary_cross_entropy_with_logits(scores, batch["y"], weight=torch.full((5,), 0.5)).float()
            + F.mse_loss(scores, batch["y"]).float()
            + F.smooth_l1_loss(scores, batch["y"], reduction="sum").float()
            + F.l1_loss(scores, batch["y"].to(dtype)).float()
        )

    return descending(loss_of, model), {"x": torch.randn(50, 8), "y": torch.rand(50, 5)}


@both("loss", "contrastive")
def siamese_towers(dtype):
    tower = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 8))

    def loss_of(batch):
        with torch.autocast("cpu", dtype):
            left, right = F.normalize(tower(batch[0]), dim=1), F.normalize(tower(batch[1]), dim=1)
            scores = left @ right.mT / 0.1
            labels = torch.arange(len(scores))
            return F.cross_entropy(scores, labels) + F.cross_entropy(scores.mT, labels)

    return descending(loss_of, tower), (torch.randn(32, 12), torch.randn(32, 12))


@both("gradscaler")
def scaled_gradients(dtype):
    model = nn.Sequential(nn.Linear(7, 14), nn.ReLU(), nn.Linear(14, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)

    def step(x):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype):
            loss = model(x).square().mean() + model(-x).abs().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step, torch.randn(44, 7)


@both("cache disabled", "shared weights")
def casts_that_are_not_kept(dtype):
    layer = nn.Linear(16, 16)

    def loss_of(x):
        with torch.autocast("cpu", dtype, cache_enabled=False):
            return layer(torch.tanh(layer(torch.tanh(layer(x))))).float().square().mean()

    return descending(loss_of, layer), torch.randn(66, 16)


@both("teacher")
def average_of_weights_as_teacher(dtype):
    student = nn.Sequential(nn.Linear(10, 20), nn.LayerNorm(20), nn.GELU(), nn.Linear(20, 6))
    teacher = copy.deepcopy(student).requires_grad_(requires_grad=False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)

    def step(x):
        with torch.autocast("cpu", dtype):
            with torch.no_grad():
                target = teacher(x).softmax(1)
            loss = F.cross_entropy(student(x + 0.1), target) + F.cross_entropy(student(x - 0.1), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for kept, new in zip(teacher.parameters(), student.parameters(), strict=True):
                kept.lerp_(new, 0.1)
        return loss.detach()

    return step, torch.randn(36, 10)


@both("no grad", "shared weights")
def own_predictions_as_targets(dtype):
    """The weights are cast without a graph first, and eager goes on with those casts: they get no gradient."""
    body, head = nn.Linear(10, 10), nn.Linear(10, 4)

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            with torch.no_grad():
                target = head(x).argmax(1)
            return F.cross_entropy(head(torch.tanh(body(x))), target)

    return descending(loss_of, body), torch.randn(36, 10)


@both("double backward")
def gradient_penalty_under_autocast(dtype):
    critic = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss_of(batch):
        between = batch["real"].lerp(batch["fake"], 0.3).requires_grad_()
        with torch.autocast("cpu", dtype):
            scores = critic(between)
            (slope,) = torch.autograd.grad(scores.float().sum(), between, create_graph=True)
            loss = critic(batch["fake"]).mean() - critic(batch["real"]).mean()
        return loss + 10 * (slope.norm(dim=1) - 1).square().mean()

    return descending(loss_of, critic), {"real": torch.randn(30, 8), "fake": torch.randn(30, 8)}


@both("checkpoint", "shared weights")
def checkpointed_blocks_under_autocast(dtype):
    block = nn.Sequential(nn.Linear(12, 12), nn.GELU(), nn.LayerNorm(12))

    def loss_of(x):
        with torch.autocast("cpu", dtype):
            h = checkpoint(block, x, use_reentrant=False)
            h = checkpoint(block, h, use_reentrant=False)
            return (h + block(x)).float().square().mean()

    return descending(loss_of, block), torch.randn(70, 12)


@both("accumulation")
def micro_batches_in_regions_of_their_own(dtype):
    model = nn.Sequential(nn.Linear(10, 20), nn.SiLU(), nn.Linear(20, 2))
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch):
        total = 0.0
        for part in batch:
            with torch.autocast("cpu", dtype):
                loss = model(part).logsumexp(1).mean() / len(batch)
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step, list(torch.randn(3, 24, 10).unbind())


@both("backward inside")
def whole_step_in_one_region(dtype):
    model = nn.Sequential(nn.Linear(11, 22), nn.GELU(), nn.Linear(22, 11))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        with torch.autocast("cpu", dtype):
            loss = F.mse_loss(model(model(x)), x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(40, 11)


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

    return descending(loss_of, model), torch.randn(52, 16)

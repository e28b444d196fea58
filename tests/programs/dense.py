"""Multi-layer perceptrons and what is put into them: activations, norms, dropout, regularisers, shapes of code."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from programs.program import Family

FAMILY = Family("dense")


@FAMILY.add("sgd")
def mlp_tanh():
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()

    def step(batch):
        inputs, labels = batch
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step, (torch.randn(96, 8), torch.randint(0, 3, (96,)))


@FAMILY.add("activations")
def mlp_every_activation():
    activations = [
        nn.ReLU(),
        nn.LeakyReLU(),
        nn.ELU(),
        nn.SELU(),
        nn.CELU(),
        nn.GELU(),
        nn.GELU("tanh"),
        nn.SiLU(),
        nn.Mish(),
        nn.Softplus(),
        nn.Softsign(),
        nn.Hardtanh(),
        nn.Hardswish(),
        nn.Hardsigmoid(),
        nn.LogSigmoid(),
        nn.Tanhshrink(),
        nn.Softshrink(),
        nn.Hardshrink(),
        nn.Sigmoid(),
        nn.PReLU(),
        nn.PReLU(8),
        nn.ReLU6(),
        nn.Threshold(0.1, 0.0),
        nn.Softmax(-1),
        nn.LogSoftmax(-1),
        nn.Softmin(-1),
        nn.RReLU(),
    ]
    model = nn.Sequential(
        *[layer for one in activations for layer in (nn.Linear(8, 8), one)], nn.Linear(8, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(batch):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, torch.randn(64, 8)


@FAMILY.add("inplace")
def mlp_inplace_activations():
    model = nn.Sequential(
        nn.Linear(8, 16),
        nn.ReLU(inplace=True),
        nn.Linear(16, 16),
        nn.LeakyReLU(inplace=True),
        nn.Linear(16, 16),
        nn.Hardtanh(inplace=True),
        nn.Linear(16, 16),
        nn.ReLU6(inplace=True),
        nn.Dropout(0.2, inplace=True),
        nn.Linear(16, 4),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(batch):
        loss = model(batch).pow(2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.item()

    return step, torch.randn(64, 8)


@FAMILY.add("dropout", "random")
def every_dropout():
    first, second = nn.Conv2d(2, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
    line, head = nn.Conv1d(6, 6, 3), nn.Linear(6, 2)
    kinds = nn.ModuleList(
        [
            nn.Dropout(0.1),
            nn.Dropout2d(0.3),
            nn.Dropout1d(0.3),
            nn.AlphaDropout(0.2),
            nn.FeatureAlphaDropout(0.2),
        ]
    )
    parameters = [*first.parameters(), *second.parameters(), *line.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters)

    def step(batch):
        x = kinds[0](F.relu(first(batch)))
        x = kinds[1](F.relu(second(x)))
        x = kinds[4](x)
        x = kinds[2](F.relu(line(x.flatten(2))))
        x = kinds[3](head(x.mean(-1)))
        x = F.dropout(x, 0.5, training=True)
        loss = x.square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach()}

    return step, torch.randn(3, 2, 6, 6)


@FAMILY.add("regulariser")
def elastic_net_penalty():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    l1, l2 = 1e-3, 1e-2

    def penalty():
        for name, parameter in model.named_parameters():
            if name.endswith("weight"):
                yield l1 * parameter.abs().sum() + l2 * parameter.square().sum()

    def step(batch):
        x, y = batch
        loss = F.l1_loss(model(x), y) + sum(penalty())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, (torch.randn(70, 8), torch.randn(70, 1))


@FAMILY.add("random", "depth")
def stochastic_depth():
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(10, 10), nn.ReLU()) for _ in range(4))
    head = nn.Linear(10, 3)
    optimizer = torch.optim.SGD([*blocks.parameters(), *head.parameters()], lr=0.1)

    def step(x):
        for number, block in enumerate(blocks, 1):
            survival = 1 - 0.2 * number
            kept = torch.rand(x.shape[0], 1).lt(survival).to(x.dtype) / survival
            x = x + kept * block(x)
        loss = head(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(64, 10)


@FAMILY.add("random", "noise")
def gaussian_noise_and_mixup_on_tensors():
    model = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 4))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch):
        x, y, share = batch["x"], batch["y"], batch["share"]
        x = x + 0.1 * torch.randn_like(x)
        other = torch.randperm(x.shape[0])
        mixed = share * x + (1 - share) * x[other]
        logits = model(mixed)
        loss = share * F.cross_entropy(logits, y) + (1 - share) * F.cross_entropy(logits, y[other])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, {"x": torch.randn(64, 8), "y": torch.randint(0, 4, (64,)), "share": torch.tensor(0.7)}


@FAMILY.add("dtype")
def double_precision():
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, amsgrad=True)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).exp().mean().log()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, torch.randn(90, 8, dtype=torch.float64)


@FAMILY.add("dtype")
def bfloat16_weights_with_float32_masters():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).bfloat16()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1, momentum=0.9)

    def step(batch):
        x, y = batch
        loss = F.cross_entropy(model(x.bfloat16()).float(), y)
        loss.backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad = parameter.grad.float()
            parameter.grad = None
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters(), strict=True):
                parameter.copy_(master)
        optimizer.zero_grad()
        return loss.detach()

    return step, (torch.randn(64, 8), torch.randint(0, 4, (64,)))


@FAMILY.add("dtype", "autocast")
def autocast_bfloat16():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(batch):
        x, y = batch
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, (torch.randn(64, 8), torch.randint(0, 4, (64,)))


@FAMILY.add("dtype", "autocast")
def autocast_with_a_float32_island():
    body, head = nn.Sequential(nn.Linear(8, 16), nn.GELU()), nn.Linear(16, 4)
    optimizer = torch.optim.Adam(
        [{"params": body.parameters(), "lr": 1e-3}, {"params": head.parameters(), "lr": 1e-2}]
    )

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(x):
        hidden = body(x)
        with torch.autocast("cpu", enabled=False):
            return head(hidden.float())

    def step(x):
        loss = forward(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(64, 8)


@dataclasses.dataclass(frozen=True)
class Settings:
    width: int = 12
    depth: int = 3
    scale: float = 0.5
    gates: tuple[str, ...] = ("sigmoid", "tanh")


class Gated(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        self.settings = settings
        self.layers = nn.ModuleList(
            nn.Linear(settings.width, 2 * settings.width) for _ in range(settings.depth)
        )

    def forward(self, x):
        for layer in self.layers:
            value, gate = layer(x).chunk(2, dim=-1)
            for name in self.settings.gates:
                gate = getattr(torch, name)(gate)
            x = x + self.settings.scale * value * gate
        return F.glu(x, dim=-1)


@FAMILY.add("config", "dataclass")
def gated_by_a_dataclass():
    model = Gated(Settings())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9, centered=True)

    def step(x):
        loss = model(x).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, torch.randn(70, 12)


@FAMILY.add("init")
def maxout_with_noisy_linear():
    weight = nn.Parameter(torch.empty(3, 8, 6))
    mean, spread = nn.Parameter(torch.randn(4, 8) / 3), nn.Parameter(torch.full((4, 8), 0.017))
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
    optimizer = torch.optim.Adam([weight, mean, spread])

    def step(x):
        hidden = torch.einsum("bi,koi->bko", x, weight).amax(1)
        row, column = (torch.randn(n).sign() * torch.randn(n).abs().sqrt() for n in (4, 8))
        out = F.linear(hidden, mean + spread * torch.outer(row, column))
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(70, 6)


@FAMILY.add("bilinear", "einsum")
def bilinear_and_factorisation_machine():
    bilinear = nn.Bilinear(5, 6, 4)
    linear, factors = nn.Linear(11, 1), nn.Parameter(torch.randn(11, 3) * 0.1)
    optimizer = torch.optim.Adagrad([*bilinear.parameters(), *linear.parameters(), factors], lr=0.05)

    def step(batch):
        left, right, target = batch
        x = torch.cat([left, right], 1)
        pairs = ((x @ factors).square() - x.square() @ factors.square()).sum(1, keepdim=True) / 2
        loss = (
            F.binary_cross_entropy_with_logits(linear(x) + pairs, target)
            + bilinear(left, right).square().mean()
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, (torch.randn(80, 5), torch.randn(80, 6), torch.rand(80, 1).round())


@FAMILY.add("lazy", "shape")
def lazy_linear_after_flatten_and_unflatten():
    model = nn.Sequential(
        nn.Unflatten(1, (4, 3)), nn.Flatten(), nn.LazyLinear(9), nn.ReLU(), nn.LazyLinear(2)
    )
    model(torch.zeros(1, 12))  # materialise
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).var(dim=0).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(64, 12)


@FAMILY.add("checkpoint")
def checkpointed_blocks():
    blocks = nn.ModuleList(
        nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16), nn.Dropout(0.1)) for _ in range(4)
    )
    optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
    run = functools.partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)

    def step(x):
        for block in blocks:
            x = x + run(block, x)
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(32, 16)


@FAMILY.add("checkpoint", "reentrant")
def checkpoint_sequential():
    model: Any = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(6)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        x = x.requires_grad_()
        loss = torch.utils.checkpoint.checkpoint_sequential(model, 3, x, use_reentrant=True).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, torch.randn(32, 16)

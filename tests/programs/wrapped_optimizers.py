"""Optimizers that hold others, and things that hold optimizers: chains, slow weights, trainers' wrappers, own tensors."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn, optim

from programs.program import Family, trained

FAMILY = Family("wrapped optimizers")


def net():
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3))


def labelled(count=64):
    return torch.randn(count, 6), torch.randint(0, 3, (count,))


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


class Lookahead(optim.Optimizer):
    """Slow weights kept in the state, moved at every update."""

    def __init__(self, base, alpha=0.5):
        self.base = base
        self.alpha = alpha
        self.param_groups = base.param_groups
        self.state = defaultdict(dict)
        self.defaults = base.defaults
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["slow"] = p.detach().clone()

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.base.step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                slow = self.state[p]["slow"]
                slow.add_(p - slow, alpha=self.alpha)
                p.copy_(slow)
        return loss

    def zero_grad(self, set_to_none=True):
        self.base.zero_grad(set_to_none)


class SharpnessAware(optim.Optimizer):
    """Two steps, or one with a closure; the optimizer inside shares the groups."""

    def __init__(self, params, base, rho=0.05, adaptive=False, **options):
        super().__init__(params, {"rho": rho, "adaptive": adaptive, **options})
        self.base = base(self.param_groups, **options)
        self.param_groups = self.base.param_groups
        self.defaults.update(self.base.defaults)

    @torch.no_grad()
    def ascend(self):
        norm = self.norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                self.state[p]["before"] = p.detach().clone()
                p.add_((p.square() if group["adaptive"] else 1.0) * p.grad * scale)
        self.zero_grad()

    @torch.no_grad()
    def descend(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p]["before"])
        self.base.step()

    @torch.no_grad()
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        self.ascend()
        closure()
        self.descend()

    def norm(self):
        parts = [
            ((p.abs() if group["adaptive"] else 1.0) * p.grad).norm()
            for group in self.param_groups
            for p in group["params"]
        ]
        return torch.stack(parts).norm()


class Accumulating:
    """Adds up gradients in buffers of its own over micro-batches, and then hands them to the optimizer inside."""

    def __init__(self, base):
        self.base = base
        self.buffers = {p: torch.zeros_like(p) for p in self.parameters()}

    def parameters(self):
        return [p for group in self.base.param_groups for p in group["params"]]

    def collect(self, weight):
        for p, buffer in self.buffers.items():
            buffer.add_(p.grad, alpha=weight)
            p.grad = None

    def step(self):
        for p, buffer in self.buffers.items():
            p.grad = buffer.clone()
        self.base.step()
        for p, buffer in self.buffers.items():
            p.grad = None
            buffer.zero_()


class Trust(optim.Optimizer):
    """Scales each gradient by the layer's trust ratio, then lets the optimizer inside update (LARS)."""

    def __init__(self, base, trust=0.02):
        self.base, self.trust = base, trust

    state = property(lambda self: self.base.state)
    param_groups = property(lambda self: self.base.param_groups)
    defaults = property(lambda self: self.base.defaults)

    @torch.no_grad()
    def step(self, closure=None):
        decays = []
        for group in self.param_groups:
            decay = group["weight_decay"]
            decays.append(decay)
            group["weight_decay"] = 0
            for p in group["params"]:
                ratio = self.trust * p.norm() / (p.grad.norm() + decay * p.norm() + 1e-8)
                p.grad.add_(p, alpha=decay).mul_(ratio)
        self.base.step(closure)
        for group, decay in zip(self.param_groups, decays, strict=True):
            group["weight_decay"] = decay

    def zero_grad(self, set_to_none=True):
        self.base.zero_grad(set_to_none)


class Quantised(optim.Optimizer):
    """Momentum in codes of eight bits, found in a table that the optimizer keeps as an attribute."""

    def __init__(self, params, lr=0.05, momentum=0.9):
        super().__init__(params, {"lr": lr, "momentum": momentum})
        line = torch.linspace(-1, 1, 255)
        self.codes = line.sign() * line.abs().pow(1.5)
        self.edges = (self.codes[1:] + self.codes[:-1]) / 2

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                kept = self.state[p]
                if "code" not in kept:
                    kept["code"] = torch.full_like(p, 127, dtype=torch.uint8)
                    kept["scale"] = p.new_ones(())
                momentum = self.codes[kept["code"].long()] * kept["scale"]
                momentum.mul_(group["momentum"]).add_(p.grad)
                kept["scale"].copy_(momentum.abs().amax().clamp(min=1e-12))
                kept["code"].copy_(torch.bucketize(momentum / kept["scale"], self.edges))
                p.add_(momentum, alpha=-group["lr"])


_WRAPS = {
    "lookahead_around_lookahead": lambda p: Lookahead(Lookahead(optim.Adam(p, 1e-2), 0.8), 0.3),
    "trust_ratios_around_sgd": lambda p: Trust(optim.SGD(p, 0.5, momentum=0.9, weight_decay=1e-3)),
    "quantised_inside_of_lookahead": lambda p: Lookahead(Quantised(p)),
}


def _wrapped(wrap):
    model = net()
    return trained(lambda batch: loss_of(model, batch), model, by=wrap), labelled()


for _name, _wrap in _WRAPS.items():
    FAMILY.put(_name, partial(_wrapped, _wrap), "wrapped")


@FAMILY.add("wrapped", "sam", "closure")
def sharpness_aware_with_a_closure():
    model = net()
    optimizer = SharpnessAware(model.parameters(), optim.Adam, adaptive=True, lr=1e-2)

    def step(batch):
        def closure():
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        loss = closure()
        optimizer.step(closure)
        optimizer.zero_grad()
        return loss.detach()

    return step, labelled()


@FAMILY.add("wrapped", "accumulation")
def gradients_accumulated_by_a_wrapper():
    model = net()
    optimizer = Accumulating(optim.AdamW(model.parameters(), 1e-2))

    def step(batch):
        total = torch.zeros(())
        for inputs, labels in zip(*(part.chunk(2) for part in batch), strict=True):
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.collect(0.5)
            total += loss.detach() / 2
        optimizer.step()
        return total

    return step, labelled()

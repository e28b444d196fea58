"""Every optimizer of `torch.optim` with the options that change its arithmetic, each on the same small network."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn, optim

from programs.program import Family, trained

FAMILY = Family("optimizers")

DECOUPLED = {"weight_decay": 0.1, "decoupled_weight_decay": True}
TABLE: dict[str, list[dict[str, Any]]] = {
    "SGD": [
        {},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-2, "foreach": True},
        {"momentum": 0.9, "weight_decay": 0.1, "dampening": 0.5, "maximize": True},
        {"momentum": 0.9, "fused": True},
        {"lr": torch.tensor(0.1), "momentum": 0.9},
    ],
    "Adam": [
        {},
        {"amsgrad": True, "weight_decay": 0.1, "foreach": True},
        {"maximize": True, "fused": True},
        {"lr": torch.tensor(0.01), "betas": (torch.tensor(0.9), torch.tensor(0.999))},
    ],
    "AdamW": [{"amsgrad": True}, {"amsgrad": True, "fused": True}, {"lr": torch.tensor(0.1)}],
    "NAdam": [{}, {"foreach": True}, DECOUPLED | {"maximize": True, "momentum_decay": 1e-3}],
    "RAdam": [{}, {"foreach": True}, DECOUPLED | {"maximize": True}],
    "Adamax": [{"weight_decay": 0.1}, {"foreach": True, "maximize": True}],
    "Adadelta": [{"rho": 0.8, "weight_decay": 0.1}, {"foreach": True, "maximize": True}],
    "Adagrad": [
        {"lr_decay": 0.1, "initial_accumulator_value": 0.1, "foreach": True},
        {"fused": True},
        {"maximize": True},
    ],
    "RMSprop": [{"momentum": 0.9, "centered": True}, {"weight_decay": 0.1, "foreach": True}],
    "Rprop": [{"etas": (0.4, 1.3), "step_sizes": (1e-5, 10)}, {"maximize": True, "foreach": True}],
    "ASGD": [{"weight_decay": 0.1}, {"foreach": True}, {"maximize": True, "t0": 2.0}],
    "Adafactor": [{}, {"weight_decay": 0.1, "d": 2.0, "maximize": True}, {"foreach": True}],
    "Muon": [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}],
}


def _network():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


def _with(model, make):
    batch = (torch.randn(64, 6), torch.randint(0, 3, (64,)))
    return trained(lambda batch: F.cross_entropy(model(batch[0]), batch[1]), model, by=make), batch


class _MuonAndAdam:
    """Muon for the matrices, Adam for the rest."""

    def __init__(self, parameters, **options):
        matrices = optim.Muon([p for p in parameters if p.ndim == 2], lr=1e-2, **options)
        self.both = (matrices, optim.Adam([p for p in parameters if p.ndim < 2]))

    def zero_grad(self):
        for optimizer in self.both:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.both:
            optimizer.step()


def _trained(name, options):
    own = {key: each.clone() if isinstance(each, torch.Tensor) else each for key, each in options.items()}
    return _with(_network(), partial(_MuonAndAdam if name == "Muon" else getattr(optim, name), **own))


for _name, _rows in TABLE.items():
    for _options in _rows if hasattr(optim, _name) else ():
        FAMILY.put(
            "_".join([_name.lower(), *(_options or ["plain"])]),
            partial(_trained, _name, _options),
            "torch.optim",
        )


@FAMILY.add("torch.optim", "hooks")
def optimizer_with_a_step_hook():
    def hooked(parameters):
        optimizer = optim.SGD(parameters, lr=0.1)
        optimizer.register_step_pre_hook(shrink)
        return optimizer

    def shrink(optimizer, args, kwargs):
        with torch.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.grad.mul_(0.5)

    return _with(_network(), hooked)

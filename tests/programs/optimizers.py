"""Every optimizer of `torch.optim` with its main flags, each on the same small network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn, optim

from programs.program import Family

FAMILY = Family("optimizers")

# Optimizer and options by name.
_EVERY: dict[str, tuple[Callable[..., optim.Optimizer], dict[str, Any]]] = {
    "sgd_plain": (optim.SGD, {}),
    "sgd_nesterov_decayed": (optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-2}),
    "sgd_dampened_maximised": (optim.SGD, {"momentum": 0.9, "dampening": 0.1, "maximize": True}),
    "sgd_fused": (optim.SGD, {"momentum": 0.9, "fused": True}),
    "sgd_foreach": (optim.SGD, {"momentum": 0.9, "foreach": True}),
    "sgd_tensor_rate": (optim.SGD, {"lr": torch.tensor(0.1)}),
    "adam_plain": (optim.Adam, {}),
    "adam_amsgrad": (optim.Adam, {"amsgrad": True, "weight_decay": 1e-2}),
    "adam_fused": (optim.Adam, {"fused": True}),
    "adam_maximised": (optim.Adam, {"maximize": True, "foreach": False}),
    "adam_capturable_options": (optim.Adam, {"eps": 1e-4, "betas": (0.8, 0.95), "foreach": True}),
    "adam_tensor_rate": (optim.Adam, {"lr": torch.tensor(1e-3)}),
    "adamw_plain": (optim.AdamW, {}),
    "adamw_amsgrad_fused": (optim.AdamW, {"amsgrad": True, "fused": True}),
    "nadam": (optim.NAdam, {}),
    "nadam_decoupled": (
        optim.NAdam,
        {"weight_decay": 1e-2, "decoupled_weight_decay": True, "momentum_decay": 1e-3},
    ),
    "radam": (optim.RAdam, {}),
    "radam_decoupled": (optim.RAdam, {"weight_decay": 1e-2, "decoupled_weight_decay": True}),
    "adamax": (optim.Adamax, {"weight_decay": 1e-3}),
    "adagrad": (optim.Adagrad, {"lr_decay": 1e-2, "initial_accumulator_value": 0.1}),
    "adagrad_fused": (optim.Adagrad, {"fused": True}),
    "adadelta": (optim.Adadelta, {"rho": 0.8, "weight_decay": 1e-3}),
    "rmsprop": (optim.RMSprop, {}),
    "rmsprop_centered_momentum": (optim.RMSprop, {"centered": True, "momentum": 0.9, "weight_decay": 1e-3}),
    "rprop": (optim.Rprop, {"etas": (0.4, 1.3), "step_sizes": (1e-5, 10)}),
    "asgd": (optim.ASGD, {}),
    "asgd_decayed": (optim.ASGD, {"weight_decay": 1e-3, "t0": 2}),
    "adafactor": (optim.Adafactor, {}),
    "adafactor_decayed": (optim.Adafactor, {"weight_decay": 1e-2, "d": 2.0}),
}


def _trained(make: Callable[..., optim.Optimizer], options: dict[str, Any]):
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    own = {
        name: option.clone() if isinstance(option, torch.Tensor) else option
        for name, option in options.items()
    }
    return _with(model, make(model.parameters(), **own))


def _with(model: nn.Module, *optimizers: optim.Optimizer):
    def step(batch):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step, (torch.randn(64, 6), torch.randint(0, 3, (64,)))


for _name, (_make, _options) in _EVERY.items():
    FAMILY.put(_name, partial(_trained, _make, _options), "torch.optim")


@FAMILY.add("torch.optim", "matrices")
def muon_with_adam_for_the_rest():
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    matrices = [p for p in model.parameters() if p.ndim == 2]
    return _with(
        model, optim.Muon(matrices, lr=1e-2), optim.Adam([p for p in model.parameters() if p.ndim < 2])
    )


@FAMILY.add("torch.optim", "hooks")
def optimizer_with_a_step_hook():
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def shrink(optimizer, args, kwargs):
        with torch.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.grad.mul_(0.5)

    optimizer.register_step_pre_hook(shrink)
    return _with(model, optimizer)

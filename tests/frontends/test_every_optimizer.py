"""Every optimizer of torch, with the flags that change its arithmetic: the same bits as eager, or a reason."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from frontends.steps import simple
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from programs.catalogue import one
from programs.optimizers import FAMILY, TABLE
from support.step_checks import assert_like_eager, assert_same_bits, joined
from support.together import together

REFUSED = {"SparseAdam": "layout torch.sparse_coo", "LBFGS": "is called with a closure"}


def layer():
    return nn.Linear(4, 3)


def test_the_table_has_every_optimizer_of_torch():
    known = {name for name, kind in vars(torch.optim).items() if inspect.isclass(kind)}
    assert known - {"Optimizer"} <= TABLE.keys() | REFUSED.keys()


# One of each way to update: in a loop, of many tensors at once, fused, with rates and counts that are tensors.
QUICK = (
    "sgd_momentum_nesterov_weight_decay_foreach",
    "adam_lr_betas",
    "adamw_amsgrad_fused",
    "adafactor_plain",
    "muon_plain",
    "optimizer_with_a_step_hook",
)


def test_an_optimizer_gives_the_bits_of_eager():
    assert_same_bits(joined(*(one("optimizers", name).factory for name in QUICK)), steps=2)


@pytest.mark.slow
def test_every_optimizer_gives_the_bits_of_eager():
    counting = [each.factory for each in FAMILY if each.name.startswith(("radam", "asgd"))]
    others = [each.factory for each in FAMILY if each.factory not in counting]
    assert_same_bits(joined(*others))
    assert_same_bits(joined(*counting), steps=8)


def test_sparse_gradients_are_refused():
    model = nn.Embedding(7, 3, sparse=True)
    step = simple(model, torch.optim.SparseAdam(model.parameters()))
    with pytest.raises(CaptureError, match=REFUSED["SparseAdam"]):
        capture_step(step, (torch.tensor([1, 2]),))
    assert model.weight.grad is None


def test_an_optimizer_that_calls_the_model_is_refused():
    step, batch = one("forms", "optimizer_with_a_closure").factory()
    with pytest.raises(CaptureError, match=REFUSED["LBFGS"]):
        capture_step(step, (batch,))


# -- schedulers


SGD = {"kind": torch.optim.SGD, "settings": {"lr": 0.1, "momentum": 0.9}}
RADAM = {"kind": torch.optim.RAdam}
rates = torch.optim.lr_scheduler
SCHEDULERS = {
    "one cycle of betas": (lambda o: rates.OneCycleLR(o, 0.1, total_steps=20), {}, 1),
    "one cycle of momentum": (lambda o: rates.OneCycleLR(o, 0.1, total_steps=20), SGD, 1),
    "one cycle and step counts": (lambda o: rates.OneCycleLR(o, 0.1, total_steps=20), RADAM, 1),
    "cycles of momentum": (lambda o: rates.CyclicLR(o, 0.01, 0.1, step_size_up=3), SGD, 1),
    "warm restarts": (lambda o: rates.CosineAnnealingWarmRestarts(o, 3), {}, 0),
    "a function": (lambda o: rates.LambdaLR(o, lambda epoch: 0.9**epoch), {}, 0),
    "a plateau": (lambda o: rates.ReduceLROnPlateau(o, patience=0), {}, 0),
    "one after the other": (
        lambda o: rates.SequentialLR(o, [rates.ConstantLR(o), rates.ExponentialLR(o, 0.9)], [3]),
        {},
        0,
    ),
}


@together("name", SCHEDULERS, quick=("one cycle of betas", "a plateau", "one after the other"))
def test_a_scheduler_costs_at_most_one_further_plan(name):
    schedule, options, most = SCHEDULERS[name]

    def make():
        model = layer()
        kind, settings = options.get("kind", torch.optim.AdamW), options.get("settings", {"lr": 0.01})
        optimizer = kind(model.parameters(), **settings)
        return simple(model, optimizer), schedule(optimizer)

    def between(_call, made):
        made[1].step(*((1.0,) if name == "a plateau" else ()))

    run = assert_like_eager(make, 6, between)
    assert run.counts.replans <= most, run.counts.describe()


def test_a_hyper_parameter_that_decides_costs_a_plan_where_it_decides_otherwise():
    """`weight_decay != 0` is a branch of SGD: its outcome is guarded, and only the number changes."""
    decays = (0.5, 0.25, 0.125, 0.0, 0.0625, 0.0, 1.0)

    def make():
        model = layer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=decays[0])
        return simple(model, optimizer), optimizer

    def between(call, made):
        made[1].param_groups[0]["weight_decay"] = decays[(call + 1) % len(decays)]

    assert assert_like_eager(make, len(decays), between).counts.replans == 2

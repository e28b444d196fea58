"""Every optimizer of torch, with the flags that change its arithmetic: the same bits as eager, or a reason."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from frontends.steps import simple
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from step_checks import assert_same_bits, planned
from together import together

TABLE: dict[str, list[dict[str, object]]] = {
    "SGD": [
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True},
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "dampening": 0.5, "maximize": True},
        {"lr": 0.1, "momentum": 0.9, "fused": True},
        {"lr": torch.tensor(0.1), "momentum": 0.9},
    ],
    "Adam": [
        {"amsgrad": True, "weight_decay": 0.1, "foreach": True},
        {"maximize": True, "fused": True},
        {"lr": torch.tensor(0.01), "betas": (torch.tensor(0.9), torch.tensor(0.999))},
    ],
    "AdamW": [{"amsgrad": True}, {"amsgrad": True, "fused": True}, {"lr": torch.tensor(0.1)}],
    "NAdam": [{}, {"foreach": True}, {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}],
    "RAdam": [{}, {"foreach": True}, {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}],
    "Adamax": [{"weight_decay": 0.1}, {"foreach": True, "maximize": True}],
    "Adadelta": [{"weight_decay": 0.1}, {"foreach": True, "maximize": True}],
    "Adagrad": [{"lr_decay": 0.1, "foreach": True}, {"fused": True}, {"maximize": True}],
    "RMSprop": [{"momentum": 0.9, "centered": True}, {"weight_decay": 0.1, "foreach": True}],
    "Rprop": [{}, {"maximize": True, "foreach": True}],
    "ASGD": [{"weight_decay": 0.1}, {"foreach": True}, {"maximize": True, "t0": 2.0}],
    "Adafactor": [{}, {"weight_decay": 0.1, "maximize": True}, {"foreach": True}],
    "Muon": [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"}],
}
REFUSED = {"SparseAdam": "layout torch.sparse_coo", "LBFGS": "is called with a closure"}


def layer(*, bias: bool = True):
    return nn.Linear(4, 3, bias=bias)


def test_the_table_has_every_optimizer_of_torch():
    known = {name for name, kind in vars(torch.optim).items() if inspect.isclass(kind)}
    assert known - {"Optimizer"} <= TABLE.keys() | REFUSED.keys()


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name, all_options in TABLE.items() for options in all_options],
    ids=lambda p: p if isinstance(p, str) else "-".join(p) or "plain",
)
def test_an_optimizer_gives_the_bits_of_eager(name, options):
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")

    def factory():
        model = layer(bias=name != "Muon")
        optimizer = getattr(torch.optim, name)(model.parameters(), **options)
        return simple(model, optimizer), torch.randn(5, 4)

    assert_same_bits(factory, steps=8 if name in {"RAdam", "ASGD"} else 5)


def test_sparse_gradients_are_refused():
    model = nn.Embedding(7, 3, sparse=True)
    step = simple(model, torch.optim.SparseAdam(model.parameters()))
    with pytest.raises(CaptureError, match=REFUSED["SparseAdam"]):
        capture_step(step, (torch.tensor([1, 2]),))
    assert model.weight.grad is None


def test_an_optimizer_that_calls_the_model_is_refused():
    model = layer()
    optimizer = torch.optim.LBFGS(model.parameters())

    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return optimizer.step(closure)

    with pytest.raises(CaptureError, match=REFUSED["LBFGS"]):
        capture_step(step, (torch.randn(5, 4),))


# -- schedulers


def scheduled(make, **options):
    """Two equal steps: one eager, one planned; and a scheduler for each that is called between the steps."""
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        model = layer()
        kind = options.get("kind", torch.optim.AdamW)
        optimizer = kind(model.parameters(), **options.get("settings", {"lr": 0.01}))
        step = simple(model, optimizer)
        runs.append((model, optimizer, step, make(optimizer)))
    return runs


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


@together("name", SCHEDULERS)
def test_a_scheduler_costs_at_most_one_further_plan(name):
    make, options, most = SCHEDULERS[name]
    eager, ours = scheduled(make, **options)
    batch = torch.randn(5, 4)
    run = planned(ours[2], batch)
    for count in range(9):
        assert torch.equal(eager[2](batch), run(batch)), count
        for _, _, _, scheduler in (eager, ours):
            scheduler.step(*((1.0,) if name == "a plateau" else ()))
    assert run.counts.replans <= most, run.counts.describe()
    for mine, theirs in zip(ours[0].parameters(), eager[0].parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_hyper_parameter_that_decides_costs_a_plan_where_it_decides_otherwise():
    """`weight_decay != 0` is a branch of SGD: its outcome is guarded, and only the number changes."""
    (model, optimizer, step, _), (twin, twin_optimizer, twin_step, _) = scheduled(
        lambda _: None, kind=torch.optim.SGD, settings={"lr": 0.1, "weight_decay": 0.5}
    )
    batch = torch.randn(5, 4)
    run = planned(twin_step, batch)
    replans = []
    for decay in (0.5, 0.25, 0.125, 0.0, 0.0625, 0.0, 1.0):
        optimizer.param_groups[0]["weight_decay"] = twin_optimizer.param_groups[0]["weight_decay"] = decay
        assert torch.equal(step(batch), run(batch))
        replans.append(run.counts.replans)
    assert replans == [0, 1, 1, 2, 2, 2, 2]
    assert torch.equal(model.weight, twin.weight)

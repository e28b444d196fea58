"""Plans are tried on the user's own objects, and nothing is left of it but the choice."""

from __future__ import annotations

import errno
import os
import random
from typing import Any

import pytest
import torch
from torch import nn

from neaptide import compile_step
from neaptide.budget import Budget
from neaptide.errors import TransferError, UsageError
from neaptide.frontends.state.state_finder import find_state
from neaptide.runtime.calls.binding import state_tensors
from neaptide.runtime.comparing import trials
from neaptide.runtime.saving import scratch_file
from support.together import together

CALLS = 3


class Trainer:
    """A model and all kinds of state around it; the methods are steps."""

    def __init__(self, make_optimizer: Any = None) -> None:
        torch.manual_seed(0)
        random.seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 2)
        )
        make_optimizer = make_optimizer or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
        self.optimizer = make_optimizer(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        self.average = torch.zeros(2)
        self.seen = 0
        self.losses: list[float] = []

    def usual(self, x):
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def keeps_gradients(self, x):
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.model(x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def scaled(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def leaves_tensors(self, x):
        out = self.model(x)
        self.average = 0.9 * self.average + 0.1 * out.detach().mean(0)
        loss = (out - self.average).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def with_host_code(self, x):
        loss = self.usual(x)
        self.scheduler.step()
        self.seen += 1
        self.losses.append(loss.item())
        return loss


class Replacing(torch.optim.Optimizer):
    """Counts in Python, and makes its state anew at each step."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                state["count"] = state.get("count", 0) + 1
                state["mean"] = 0.9 * state.get("mean", torch.zeros_like(parameter)) + parameter.grad
                parameter.sub_(group["lr"] / state["count"] * state["mean"])


def everything(trainer, step, batch):
    """All that a step can change, as plain data and copies."""
    tensors = [tensor.detach().clone() for tensor in state_tensors(find_state(step))]
    return {
        "tensors": [*tensors, batch.clone(), trainer.average.clone(), torch.get_rng_state()],
        "gradients": [p.grad is None for p in trainer.model.parameters()],
        "python": (trainer.seen, list(trainer.losses), random.getstate(), vars(trainer.optimizer).keys()),
        "state": [
            {key: None if isinstance(entry, torch.Tensor) else entry for key, entry in entries.items()}
            for entries in trainer.optimizer.state.values()
        ],
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in trainer.optimizer.param_groups],
        "scaler": trainer.scaler.state_dict(),
        "scheduler": trainer.scheduler.last_epoch,
    }


def same(one, other):
    tensors, others = one.pop("tensors"), other.pop("tensors")
    assert len(tensors) == len(others)
    for a, b in zip(tensors, others, strict=True):
        assert torch.equal(a, b)
    assert one == other


def tried(step, budget="+50%", **options):
    asked = Budget(None, latency=budget) if isinstance(budget, str) and budget[0] == "+" else budget
    return compile_step(
        step, budget=asked, trials=2, time_limit_s=None, work_limit=40, on_mismatch="error", **options
    )


OPTIMIZERS = {
    "momentum": None,
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "replaces_its_state": lambda p: Replacing(p, {"lr": 0.1}),
    "tensor_rate": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), capturable=False, foreach=False),
}


@together(
    ("name", "optimizer"),
    [
        ("usual", "momentum"),
        ("keeps_gradients", "tensor_rate"),
        ("usual", "replaces_its_state"),
        ("scaled", "momentum"),
        ("leaves_tensors", "momentum"),
        ("with_host_code", "adamw"),
    ],
    quick=(3, 5),
)
def test_after_each_call_everything_is_as_without_trials(name, optimizer):
    batch = torch.randn(3, 2, 6, 6, generator=torch.Generator().manual_seed(1))
    ours, theirs = (Trainer(OPTIMIZERS[optimizer]) for _ in range(2))
    step, eager = getattr(ours, name), getattr(theirs, name)
    runner = tried(step)
    for call in range(CALLS):
        torch.manual_seed(call)
        found = runner(batch)
        ours_now = everything(ours, step, batch)
        torch.manual_seed(call)
        expected = eager(batch)
        assert torch.equal(found, expected)
        same(ours_now, everything(theirs, eager, batch))
    record = runner.plan.programs[0].trials
    assert record is not None
    assert runner.counts.planned == CALLS
    assert ("program order" in record.beside) == (name == "with_host_code")
    assert record.longest_ratio == 1.5
    assert all(row.measured_seconds > 0 for row in record.rows)


# The second one leaves other gradients at each call.
@pytest.mark.parametrize("name", ["usual", pytest.param("scaled", marks=pytest.mark.slow)])
def test_a_trial_that_dies_leaves_everything_as_it_was(monkeypatch, name):
    trainer = Trainer()
    step, batch = getattr(trainer, name), torch.randn(3, 2, 6, 6)
    runner = tried(step)
    runner(batch)
    before = everything(trainer, step, batch)
    ran = []

    def stopped(runs, *_rounds, **_options):
        for name, run in runs.items():
            ran.append(name)
            run()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trials, "interleaved", stopped)
        with pytest.raises(KeyboardInterrupt):
            runner(batch)
    assert ran[-1] == "beside"
    same(before, everything(trainer, step, batch))
    runner(batch)
    assert runner.plan.programs[0].trials is not None


def test_for_a_limit_of_bytes_the_step_as_it_is_does_not_run():
    runner = tried(Trainer().usual, budget="100%")
    batch = torch.randn(3, 2, 6, 6)
    for _ in range(CALLS):
        runner(batch)
    record = runner.plan.programs[0].trials
    assert (record.reason, record.beside) == ("fastest", "the plan for the limit itself")
    assert record.rows[0].measured_ratio == 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": Budget(None)}, "a budget without a limit exclude each other"),
        ({"budget": "60%", "trials": 1}, "trials=1 is not possible"),
        ({"budget": "60%", "eviction": "dtr"}, "trials"),
    ],
)
def test_trials_that_cannot_be_meant(options, words):
    with pytest.raises(UsageError, match=words):
        compile_step(Trainer().usual, **{"trials": 2, **options})


def test_a_disk_without_room_for_the_copy_is_told_before_anything_is_tried(monkeypatch):
    trainer = Trainer()
    runner, batch = tried(trainer.usual), torch.randn(3, 2, 6, 6)
    runner(batch)
    before = everything(trainer, trainer.usual, batch)
    monkeypatch.setattr(scratch_file.os, "pwrite", no_space)
    with pytest.raises(TransferError, match="cannot wait in a file"):
        runner(batch)
    same(before, everything(trainer, trainer.usual, batch))


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

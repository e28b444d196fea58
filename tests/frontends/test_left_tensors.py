"""Tensors that a step leaves in Python state at each call: features that hooks keep, losses on modules, averages."""

from __future__ import annotations

import functools
import types

import pytest
import torch
from torch import nn

from frontends.steps import batch, net, sgd, update
from neaptide.errors import CaptureError, StepMismatch
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_like_eager, assert_same_bits, planned
from support.together import together


class Keeps(nn.Module):
    """A module that keeps things from its forward."""

    def __init__(self):
        super().__init__()
        self.inner = net()
        self.last = None
        self.register_buffer("average", torch.zeros(3))
        self.loose = torch.zeros(3)
        self.rows = torch.zeros(3)

    def forward(self, x):
        out = self.inner(x)
        self.last = out.square().mean()
        self.average = 0.9 * self.average + 0.1 * out.detach().mean(0)
        self.loose = out.detach().mean(0)
        self.rows[0] = self.average[0]
        return out + self.average


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = Keeps()
        self.optimizer = sgd(self.model, momentum=0.9)
        self.features = {}
        self.hidden = torch.zeros(4)
        self.seen = 0
        self.total = 0.0

    def update(self, loss):
        return update(loss, self.optimizer)

    def hooks(self, x):
        out = self.model(x)
        return self.update(out.square().mean() + self.features["first"].abs().mean())

    def keeps_a_loss(self, x):
        out = self.model(x)
        return self.update(out.abs().mean() + 0.1 * self.model.last)

    def goes_on_from_the_last_call(self, x):
        self.hidden = (self.hidden + x.mean(0)).tanh().detach()
        return self.update(self.model(x + self.hidden).square().mean())

    def and_counts(self, x):
        loss = self.update(self.model(x).square().mean())
        self.seen += 1
        self.total = self.model.last.item() + self.features["first"].sum().item()
        return loss


def trainer_of(name):
    trainer = Trainer()
    if name in {"hooks", "and_counts"}:
        keep = lambda _module, _inputs, out: trainer.features.__setitem__("first", out)  # noqa: E731
        trainer.model.inner[0].register_forward_hook(keep)
    return trainer, getattr(trainer, name)


NAMES = ["hooks", "keeps_a_loss", "goes_on_from_the_last_call", "and_counts"]


@together("name", NAMES, quick=("hooks", "goes_on_from_the_last_call", "and_counts"))
@together("warm", [0, 1], quick=(1,))
def test_three_steps_leave_what_eager_leaves(name, warm):
    def make():
        trainer, step = trainer_of(name)
        for _ in range(warm):
            step(batch())
        return step, trainer

    run = assert_like_eager(make, calls=3, shape=(6, 4), on_mismatch="error")
    assert run.counts.planned == 3


@together("name", NAMES, quick=("hooks",))
def test_a_verify_run_on_fresh_objects_agrees(name):
    assert_same_bits(lambda: (trainer_of(name)[1], batch()))


def test_a_place_that_holds_something_else_is_another_program():
    trainer, step = trainer_of("keeps_a_loss")
    step(batch())
    run = planned(step, batch(), on_mismatch="error")
    run(batch())
    trainer.model.last = "nothing"
    with pytest.raises(StepMismatch, match="what is no tensor in self"):
        run(batch())
    assert trainer.model.last == "nothing"


def test_the_old_tensor_is_let_go_of_when_a_call_begins():
    _, step = trainer_of("keeps_a_loss")
    run = planned(step, batch(), on_mismatch="error")
    run(batch())
    writes = run._variants[0].planned.captured.first_writes
    assert writes.overwritten >= {"self.model.last", "self.model.loose"}
    assert not any(name.endswith("average") for name in writes.overwritten)


def test_spectral_norm_of_the_old_kind_is_captured():
    def factory():
        model = nn.utils.spectral_norm(nn.Linear(4, 3))
        optimizer = sgd(model)

        def step(x):
            return update(model(x).square().mean(), optimizer)

        return step, batch()

    assert_same_bits(factory)


def test_a_first_call_that_reads_no_tensor_yet_is_refused():
    model, kept = net(), {}
    optimizer = sgd(model)

    def step(x):
        loss = model(x).square().mean()
        loss = loss if kept.get("last") is None else loss + kept["last"]
        kept["last"] = loss.detach()
        return update(loss, optimizer)

    with pytest.raises(CaptureError, match="call the step once"):
        capture_step(step, (batch(),))
    assert kept == {}
    step(batch())
    run = planned(functools.partial(step), batch(), on_mismatch="error")
    run(batch())
    run(batch())


def test_a_number_that_becomes_a_tensor_in_front_of_the_update_is_refused():
    model = net()
    optimizer = sgd(model)
    trainer = types.SimpleNamespace(average=0.0)

    def step(x):
        loss = model(x).square().mean()
        trainer.average = 0.9 * trainer.average + 0.1 * loss.detach()
        return update(loss, optimizer)

    with pytest.raises(CaptureError, match="call the step once"):
        capture_step(step, (batch(),))
    assert trainer.average == 0.0


def a_hook_of_torchs_own_module(model):
    model[1].register_forward_hook(
        lambda module, _, out: setattr(module, "density", (out > 0).float().mean())
    )


def a_hook_of_the_backward_pass(model):
    def note(module, _, gradients):
        module.slope = gradients[0].detach().norm()

    model[1].register_full_backward_hook(note)


def a_hook_of_a_gradient(model):
    model[0].weight.register_hook(lambda gradient: setattr(model[2], "before", gradient.abs().max()))


@pytest.mark.parametrize(
    "register", [a_hook_of_torchs_own_module, a_hook_of_the_backward_pass, a_hook_of_a_gradient]
)
def test_tensors_on_modules_of_torchs_own(register):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        register(model)
        optimizer = sgd(model)
        return lambda x: update(model(x).square().mean(), optimizer), model

    assert_like_eager(make, 3)

"""Host code after the last tensor operation runs after the program: as in eager, call by call, state and all."""

from __future__ import annotations

import functools

import pytest
import torch

from frontends.programs import host_steps
from frontends.programs.host_steps import REASONS, STEPS, Trainer
from frontends.steps import batch, net, update
from neaptide.errors import CaptureError, PlanMismatch, StepMismatch
from neaptide.frontends.torch_step import capture_step, rebind_step
from support.step_checks import assert_like_eager, assert_same_bits, planned
from support.together import together


def example(name):
    return (batch(), torch.randint(0, 3, (6,))) if name == "measures" else batch()


QUICK = {
    "appends_tensors",
    "fills_a_history",
    "shows",
    "averages_the_model",
    "schedules",
    "reads_gradients",
    "cools",
    "leaves_before_it_clears",
    "keeps_a_generator_in_a_variable",
    "closure",
}


@together("name", STEPS, quick=QUICK)
def test_three_steps_leave_what_eager_leaves(name, capsys):
    def make():
        host_steps.SEEN = 0
        trainer = Trainer()
        capsys.readouterr()
        return STEPS[name](trainer), trainer

    def show(_call, _made):
        shown.append(capsys.readouterr().out)

    shown = []
    # A step that keeps its gradients once is two programs; all others are one.
    options = {"on_mismatch": "replan" if name == "leaves_before_it_clears" else "error"}
    run = assert_like_eager(make, 3, show, batches=lambda _call: example(name), **options)
    assert shown[3:] == shown[:3]
    assert run.counts.planned == 3


class Cycled:
    """A user's step whose last line has momenta cycled: a tuple of betas, or one number, in the parameter groups."""

    def __init__(self, kind):
        torch.manual_seed(0)
        self.model = net()
        make, options = OPTIMIZERS[kind]
        self.optimizer = make(self.model.parameters(), **options)
        self.schedulers = [torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=0.05, total_steps=9)]
        self.chained = torch.optim.lr_scheduler.ChainedScheduler(self.schedulers)

    def update(self, x):
        return update(self.model(x).square().mean(), self.optimizer)

    def one(self, x):
        loss = self.update(x)
        self.schedulers[0].step()
        return loss

    def chain(self, x):
        loss = self.update(x)
        self.chained.step()
        return loss

    def by_hand(self, x):
        loss = self.update(x)
        for group in self.optimizer.param_groups:
            group["weight_decay"] = group["weight_decay"] * 0.5
        return loss


OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.01}),
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
}


@together(
    ("kind", "name"), [("adamw", "one"), ("sgd", "one"), ("adamw", "chain"), ("sgd", "by_hand")], quick=(0, 3)
)
def test_what_the_tail_writes_into_parameter_groups_is_an_input_from_the_start(kind, name):
    assert_like_eager(lambda: (getattr(Cycled(kind), name),), on_mismatch="error")


def test_the_notes_name_the_first_line_behind_the_program():
    captured = capture_step(Trainer().counts, (batch(),))
    note = next(note for note in captured.steady.rewrites if "after the program" in note)
    assert "self.n += 1" in note
    assert "written_steps.py" in note


def test_a_verify_run_compares_what_the_tail_returns_and_leaves():
    def factory():
        trainer = Trainer()
        return trainer.averages, batch()

    assert_same_bits(factory)


def test_a_capture_with_host_code_is_put_on_other_objects():
    x, first, second = batch(), Trainer(), Trainer()
    captured = capture_step(first.counts, (x,))
    assert rebind_step(captured, second.counts, (x,)).host.tail.__self__ is second
    with pytest.raises(PlanMismatch):
        rebind_step(captured, lambda x: second.counts(x), (x,))  # noqa: PLW0108


def test_what_the_tail_raises_is_the_users_own_and_the_step_is_done():
    trainer = Trainer()

    def step(x):
        loss = trainer.update(x)
        trainer.n += 1
        if trainer.n == 2:
            raise StopIteration(loss.item())
        return loss.item()

    eager, x = Trainer(), batch()
    run = planned(step, x, on_mismatch="error")
    run(x)
    with pytest.raises(StopIteration):
        run(x)
    run(x)
    for _ in range(3):
        eager.update(x)
    for a, b in zip(trainer.model.parameters(), eager.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_result_keeps_that_it_was_attached_and_leads_nowhere():
    trainer = Trainer()
    kept = []

    def step(x):
        loss = trainer.update(x)
        kept.append(loss)
        return loss.detach()

    run = planned(step, batch())
    run(batch())
    assert kept[0].requires_grad
    assert not kept[0].is_leaf
    kept[0].mul_(2.0)
    with pytest.raises(StepMismatch, match="goes through one of its results"):
        kept[0].backward()


# -- what stays refused


@together("name", REASONS, quick=("between", "hands_on_an_object", "reads_what_it_writes", "updates_behind"))
def test_host_code_that_cannot_run_behind_is_refused_with_the_reason(name):
    trainer = Trainer()
    with pytest.raises(CaptureError) as caught:
        capture_step(getattr(trainer, name), (batch(),))
    assert REASONS[name] in caught.value.next_step
    assert "move it after the last tensor operation" in caught.value.next_step


def decorated(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


def test_a_step_whose_statements_are_not_at_hand_is_refused():
    trainer = Trainer()
    from_text = {"trainer": trainer}
    exec("def step(x):\n    loss = trainer.update(x)\n    trainer.log.append(1)\n    return loss", from_text)
    for step, reason in (
        (decorated(trainer.appends_tensors), "a decorator is around the step"),
        (lambda x: trainer.log.append(trainer.update(x)), "a lambda"),
        (from_text["step"], "not there"),
    ):
        with pytest.raises(CaptureError) as caught:
            capture_step(step, (batch(),))
        assert reason in caught.value.next_step

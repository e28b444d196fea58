"""What cannot become one straight-line program is refused at the user's line, and everything is left as it was."""

from __future__ import annotations

import builtins
import copy
import inspect
import logging
import random
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.errors import CaptureError
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.torch_step import capture_step
from support.together import together

logger = logging.getLogger(__name__)
logger.setLevel("INFO")


class Trainer:
    """A user's trainer; each of its steps, also those of the table, does one thing that cannot be captured, at its line."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
        self.model[0].weight.register_hook(lambda g: g * 1.0)
        self.model[3].register_forward_hook(lambda _m, _i, out: out)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)
        self.history = []
        self.average = torch.zeros(())
        self.values = [1.0, 2.0]
        self.numbers = iter(range(10))
        self.array = np.ones(3, dtype=np.float32)
        self.bound = torch.ones(3).mul  # a tensor inside a builtin method: nothing to look into
        self.notes = types.SimpleNamespace(last=None)

    def update(self, x):
        return steps.update(self.model(x).square().mean(), self.optimizer)

    def branches(self, x):
        loss = self.model(x).square().mean()
        if loss > 1.0:  # HERE
            return loss
        return self.update(x)

    def asserts(self, x):
        assert not torch.isnan(x).any()  # HERE
        return self.update(x)

    def sets_flag(self, x):
        self.optimizer.param_groups[0]["nesterov"] = True  # HERE
        return self.update(x)

    def rewires(self, x):
        self.model[1] = nn.Identity()  # HERE
        return self.update(x)


LINES = {
    "prints": lambda self, x: (print("a step"), self.update(x)),  # noqa: T201
    "prints_item": lambda self, x: (self.update(x), f"{x.sum().item():.3f}"),
    "formats_tensor": lambda self, x: (self.update(x), f"batch {x}"),
    "logs": lambda self, x: (logger.info("a step"), self.update(x)),
    "writes_stdout": lambda self, x: (sys.stdout.write("step\n"), self.update(x)),
    "appends": lambda self, x: (self.history.append(x.mean().item()), self.update(x)),
    "pops": lambda self, x: (self.values.pop(), self.update(x)),
    "selects": lambda self, x: self.update(x[x[:, 0] > 0]),
    "searches": lambda self, x: self.update(x) + x.nonzero().sum(),
    "draws_python": lambda self, x: self.update(x) * random.random(),
    "draws_numpy": lambda self, x: self.update(x) * float(np.random.rand()),  # noqa: NPY002
    "draws_next": lambda self, x: self.update(x) * next(self.numbers),
    "schedules": lambda self, x: (self.scheduler.step(), self.update(x)),
    "bakes": lambda self, x: self.update(x) + self.bound(2.0).sum(),
    "from_numpy": lambda self, x: self.update(x) + torch.from_numpy(self.array).sum(),
    "tensor_of_numpy": lambda self, x: self.update(x) + torch.tensor(self.array).sum(),
    "big_literal": lambda self, x: self.update(x) + torch.tensor([1.0] * 20_000).sum(),
    "fails": lambda self, x: self.model(x[:, :2]),
    "generator": lambda self, x: self.update(x) + torch.rand(3, generator=torch.Generator()).sum(),
    "registers": lambda self, x: (self.model[0].register_forward_hook(ignored), self.update(x)),
    "batch_gradient": lambda self, x: self.update(x.requires_grad_()),
}


def ignored(_module, _inputs, out):
    return out


REFUSED = [*LINES, "branches", "asserts", "sets_flag", "rewires"]
NAMES_NO_LINE = {"batch_gradient"}


def step_of(trainer, name):
    return types.MethodType(LINES[name], trainer) if name in LINES else getattr(trainer, name)


def marked_line(name):
    if name in LINES:
        return LINES[name].__code__.co_firstlineno
    lines, first = inspect.getsourcelines(getattr(Trainer, name))
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("HERE"))


def photograph(trainer):
    """Everything a trace could leave behind, as plain data or by identity."""
    model, optimizer = trainer.model, trainer.optimizer
    entries = {k: v for k, v in vars(trainer).items() if k != "numbers"}
    hooks = [dict(getattr(m, k)) for m in model.modules() for k in vars(m) if k.endswith("_hooks")]
    return {
        "entries": dict(entries),
        "lists": (list(trainer.history), list(trainer.values), dict(vars(trainer.notes))),
        "modules": list(model.modules()),
        "tensors": [*model.parameters(), *model.buffers(), trainer.average],
        "gradients": [p.grad for p in model.parameters()],
        "hooks": hooks,
        "groups": [
            [id(g), *g["params"], {k: v for k, v in g.items() if k != "params"}]
            for g in optimizer.param_groups
        ],
        "state": {id(p): dict(s) for p, s in optimizer.state.items()},
        "optimizer": {k: v for k, v in vars(optimizer).items() if k not in {"state", "param_groups"}},
        "scheduler": dict(vars(trainer.scheduler)),
        "functions": (
            torch.autograd.backward,
            torch.autograd.grad,
            torch.utils.checkpoint.CheckpointFunction,
        ),
        "python": (builtins.print, logging.Logger.handle, vars(torch.SymFloat).get("__str__"), sys.stdout),
    }


def all_random_state():
    _, keys, position, *_ = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().tolist(), random.getstate(), keys.tolist(), position


def same(a, b):
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return a is b
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b or a == b


# What Python code does, in the order of the table: each of them stops a trace in a way of its own.
OFTEN = {
    "prints_item",
    "logs",
    "appends",
    "selects",
    "draws_python",
    "draws_numpy",
    "schedules",
    "from_numpy",
    "big_literal",
    "fails",
    "generator",
    "registers",
    "batch_gradient",
    "branches",
    "asserts",
    "sets_flag",
    "rewires",
}


@together("name", REFUSED, quick=OFTEN)
def test_refused_at_the_line_and_nothing_changed(name):
    trainer = Trainer()
    x = torch.randn(6, 4)
    if REFUSED.index(name) % 2:  # half of them when gradients and optimizer state exist already
        trainer.update(x)
        trainer.model(x).sum().backward()
    before = photograph(trainer)
    bits = copy.deepcopy([t.detach() for t in before["tensors"]])
    gradients = copy.deepcopy(before["gradients"])
    randomness = all_random_state()
    with pytest.raises(CaptureError) as caught:
        capture_step(step_of(trainer, name), (x,))
    assert caught.value.exit_code == 4
    if name not in NAMES_NO_LINE:
        assert f"{__file__}:{marked_line(name)}" in str(caught.value)
        assert caught.value.why
        assert caught.value.next_step
    after = photograph(trainer)
    for part, content in before.items():
        assert same(after[part], content), part
    assert all(torch.equal(a, b) for a, b in zip(before["tensors"], bits, strict=True))
    for now, then in zip(before["gradients"], gradients, strict=True):
        assert now is None if then is None else torch.equal(now, then)
    assert all_random_state() == randomness
    assert next(trainer.numbers) == 0
    assert all(
        type(slot.current()) in {torch.Tensor, nn.Parameter} for slot in find_state(trainer.update).tensors
    )


def test_what_a_program_cannot_carry_is_refused_by_name():
    trainer, item = Trainer(), torch.Generator()

    def step(x):
        return None if item is None else trainer.update(x)

    with pytest.raises(CaptureError, match="random generator") as caught:
        capture_step(step, (torch.randn(6, 4),))
    assert "item" in str(caught.value)


def test_gradient_into_what_was_computed_outside_is_refused():
    base = torch.ones(3, requires_grad=True)
    outside = base * 2
    optimizer = torch.optim.SGD([base], lr=0.1)

    def step(x):
        loss = (x * outside).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with pytest.raises(CaptureError, match="computed outside the step"):
        capture_step(step, (torch.ones(3),))


def test_a_step_that_never_settles_is_refused():
    model = nn.ModuleList(nn.Linear(2, 2) for _ in range(6))

    def step(x):
        frozen = [layer for layer in model if layer.weight.grad is None]
        loss = frozen[0](x).sum() if frozen else x.sum()
        loss.backward()
        return loss.detach()

    with pytest.raises(CaptureError, match="steady state"):
        capture_step(step, (torch.randn(3, 2),))


def test_interrupt_during_the_trace_restores_everything():
    trainer = Trainer()

    def step(x):
        trainer.model(x)
        raise KeyboardInterrupt

    before = photograph(trainer)
    with pytest.raises(KeyboardInterrupt):
        capture_step(step, (torch.randn(6, 4),))
    after = photograph(trainer)
    assert all(same(after[part], content) for part, content in before.items())


def test_a_complex_number_in_an_operation_is_refused_at_its_line():
    model = steps.net()
    optimizer = steps.sgd(model)

    def step(x):
        loss = torch.exp(model(x) * 1j).real.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with pytest.raises(CaptureError, match=r"takes .*1j") as refused:
        capture_step(step, (steps.batch(),))
    assert "test_refusals.py" in refused.value.where
    assert refused.value.next_step


@pytest.mark.parametrize("by_step", [True, False])
def test_a_gradient_of_the_batch_is_refused_by_place_reason_and_fix(by_step):
    model = steps.net()
    optimizer = steps.sgd(model)

    def step(x):
        if by_step:
            x.requires_grad_()
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with pytest.raises(CaptureError, match=r"computes a gradient for batch\[0\]") as refused:
        capture_step(step, (steps.batch().requires_grad_(not by_step),))
    assert ("x.requires_grad_()" if by_step else "was passed in with requires_grad") in refused.value.where
    assert refused.value.why
    assert "detach" in refused.value.next_step


def test_a_step_may_change_a_copy_of_its_batch():
    trainer = Trainer()

    def step(batch):
        batch = dict(batch)
        batch["x"] = batch["x"] * batch.pop("factor")
        return trainer.update(batch["x"])

    assert capture_step(step, ({"x": torch.randn(6, 4), "factor": torch.ones(4)},)).programs


def test_other_bytes_for_a_parameter_are_refused():
    model = nn.Linear(4, 3)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        for parameter in model.parameters():
            parameter.data = parameter.data - 0.1 * parameter.grad  # HERE
            parameter.grad = None
        return loss.detach()

    before = [p.data_ptr() for p in model.parameters()]
    with pytest.raises(CaptureError, match=r"weight\.data") as caught:
        capture_step(step, (torch.randn(6, 4),))
    assert "parameter.data = " in str(caught.value)
    assert "copy_" in caught.value.next_step
    assert [p.data_ptr() for p in model.parameters()] == before

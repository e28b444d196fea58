"""Optimizers that others hold, and tensors that optimizers keep: what a step reaches is state, wherever it is kept."""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from typing import NamedTuple

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.errors import CaptureError
from neaptide.frontends.state.state_finder import find_state
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_like_eager, together_made


class SlowWeights(torch.optim.Optimizer):
    """Every update is followed by one of slow weights; shares groups and state with the optimizer inside."""

    def __init__(self, inner, rate=0.5):
        self.inner = inner
        self.rate = rate
        self.defaults = inner.defaults
        self.param_groups = inner.param_groups
        self.state = inner.state
        self.slow = [[p.detach().clone() for p in group["params"]] for group in self.param_groups]

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.inner.step(closure)
        for group, slow in zip(self.param_groups, self.slow, strict=True):
            for p, kept in zip(group["params"], slow, strict=True):
                kept.lerp_(p, self.rate)
                p.copy_(kept)
        return loss

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)


class Halving(torch.optim.Optimizer):
    """Writes the rate of the groups that it shares with the optimizer inside."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.2})
        self.inner = torch.optim.SGD(self.param_groups, momentum=0.9)

    def step(self, closure=None):
        for group in self.param_groups:
            group["lr"] *= 0.5
        self.inner.step()


class Several:
    """No optimizer by type, with several in a dict and in a list."""

    def __init__(self, *inner):
        self.named = {str(i): each for i, each in enumerate(inner[:1])}
        self.listed = [*inner[1:]]
        self.param_groups = [group for each in inner for group in each.param_groups]

    def step(self):
        for each in (*self.named.values(), *self.listed):
            each.step()

    def zero_grad(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None


class Slotted:
    __slots__ = ("inner",)

    def __init__(self, inner):
        self.inner = inner

    def step(self):
        self.inner.step()

    def zero_grad(self):
        self.inner.zero_grad()


class ReadsGroups:
    """Updates by itself with the rate of another optimizer's group, which a scheduler writes between the steps."""

    def __init__(self, optimizer):
        self.groups = optimizer.param_groups

    @torch.no_grad()
    def step(self):
        for group in self.groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])

    def zero_grad(self):
        for group in self.groups:
            for p in group["params"]:
                p.grad = None


class Table(torch.optim.Optimizer):
    """Keeps tensors of its own: a table that it reads, a count that it writes, a mean in a dict."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})
        self.table = torch.linspace(-1, 1, 16)
        self.count = torch.zeros(())
        self.kept = {"mean": torch.zeros(3)}
        self.recent = deque([torch.zeros(()), torch.ones(())])

    @torch.no_grad()
    def step(self, closure=None):
        self.count += 1
        self.recent[0].add_(self.recent[1])
        for group in self.param_groups:
            for p in group["params"]:
                at = torch.bucketize(p.grad.clamp(-1, 1), self.table[1:-1])
                p.sub_(self.table[at] * group["lr"] / self.count)
        self.kept["mean"].lerp_(self.param_groups[0]["params"][-1], 0.1)


class Decaying(torch.optim.SGD):
    """Counts in an attribute whose name begins as those of torch's own notes do."""

    def __init__(self, params):
        super().__init__(params, 0.1)
        self._rate = 1.0

    @torch.no_grad()
    def step(self, closure=None):
        self._rate = self._rate * 0.5
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-self._rate)


class Held(NamedTuple):
    """Holds an optimizer in a tuple with a name."""

    inner: torch.optim.Optimizer

    def step(self):
        self.inner.step()

    def zero_grad(self):
        self.inner.zero_grad()


class Queued:
    def __init__(self, inner):
        self.queue = deque([functools.partial(inner.step)])
        self.clear = inner.zero_grad

    def step(self):
        self.queue[0]()

    def zero_grad(self):
        self.clear()


def simple_with(wrap):
    def make():
        model = steps.net()
        return (steps.simple(model, wrap(list(model.parameters()))),)

    return make


WRAPS = {
    "shared groups and state": lambda p: SlowWeights(torch.optim.Adam(p, 0.01)),
    "three deep": lambda p: SlowWeights(SlowWeights(torch.optim.SGD(p, 0.1, momentum=0.9)), 0.2),
    "a rate written for another": Halving,
    "in a dict and a list": lambda p: Several(torch.optim.SGD(p[:2], 0.1), torch.optim.AdamW(p[2:], 0.01)),
    "in a slot": lambda p: Slotted(torch.optim.Adam(p, 0.01)),
    "tensors of its own": Table,
    "groups of another": lambda p: ReadsGroups(torch.optim.SGD(p, 0.1)),
    "a count with an underscore": Decaying,
    "in a named tuple": lambda p: Held(torch.optim.Adam(p, 0.01)),
    "a partial in a queue": lambda p: Queued(SlowWeights(torch.optim.SGD(p, 0.1))),
    "parameters of no module found": lambda p: Several(torch.optim.SGD(p, 0.1)),
}


QUICK = (
    "shared groups and state",
    "a rate written for another",
    "in a dict and a list",
    "tensors of its own",
    "a partial in a queue",
)


@pytest.mark.parametrize("names", [QUICK, pytest.param(tuple(WRAPS), marks=pytest.mark.slow)], ids=len)
def test_a_held_optimizer_updates_as_in_eager(names):
    run = assert_like_eager(together_made(*(simple_with(WRAPS[name]) for name in names)), 3)
    assert run.counts.replans == 0, run.counts.describe()


def test_a_rate_is_read_from_groups_that_something_else_holds():
    def make():
        model = steps.net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return steps.simple(model, ReadsGroups(optimizer)), torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def between(_call, made):
        for group in made[1].optimizer.param_groups:
            group["lr"] *= 0.5

    assert_like_eager(make, between=between)


# A library: its module has a file among the installed packages.
LIBRARY = """
import torch

class Forwarder(torch.optim.Optimizer):
    def __init__(self, optimizer, scaler):
        self.optimizer, self.scaler, self._stepped = optimizer, scaler, False
        self._noting = noting(self, optimizer.step)

    state = property(lambda self: self.optimizer.state)
    param_groups = property(lambda self: self.optimizer.param_groups)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        self.scaler.step(self.optimizer)
        self._noting()
        self.scaler.update()

def noting(forwarder, step):
    def noted():
        forwarder._stepped = True
    return noted

class Wrapper:
    def __init__(self, model, optimizer):
        self.parts = {"model": model, "optimizers": [optimizer]}

    def train(self, x):
        loss = self.parts["model"](x).square().mean()
        loss.backward()
        for optimizer in self.parts["optimizers"]:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()
"""


@pytest.fixture
def library(monkeypatch):
    module = types.ModuleType("wrapping_library")
    module.__file__ = torch.__file__.replace("torch/__init__.py", "wrapping_library.py")
    monkeypatch.setitem(sys.modules, "wrapping_library", module)
    exec(compile(LIBRARY, module.__file__, "exec"), vars(module))
    return module


def test_a_forwarding_optimizer_of_a_library_with_a_scaler_updates(library):
    def make():
        model = steps.net()
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        optimizer = library.Forwarder(torch.optim.AdamW(model.parameters(), 0.01), scaler)

        def step(x):
            scaler.scale(model(x).square().mean()).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step, model

    assert assert_like_eager(make).counts.replans == 0


def test_what_an_object_of_a_library_holds_is_state(library):
    def make():
        model = steps.net()
        wrapper = library.Wrapper(model, torch.optim.Adam(model.parameters(), 0.01))
        return (lambda x: wrapper.train(x)), wrapper  # noqa: PLW0108 - the library's method is no step of the user's

    assert_like_eager(make)


def test_an_optimizer_that_a_scheduler_holds_is_state():
    model = steps.net()
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), 0.1), 1)

    def step(x):
        model(x).square().mean().backward()
        scheduler.optimizer.step()

    assert [type(o) for o in find_state(step).optimizers.values()] == [torch.optim.SGD]


def test_groups_and_state_are_left_as_they_were():
    model = steps.net()
    held = SlowWeights(torch.optim.Adam(model.parameters(), 0.01))
    step = steps.simple(model, held)
    step(steps.batch())
    before = [dict(group, params=[*group["params"]]) for group in held.param_groups]
    entries = {p: dict(kept) for p, kept in held.state.items()}
    capture_step(step, (steps.batch(),))
    assert held.param_groups is held.inner.param_groups
    assert [dict(group) for group in held.param_groups] == before
    assert {p: dict(kept) for p, kept in held.state.items()} == entries
    assert all(type(p) is nn.Parameter for group in held.param_groups for p in group["params"])


def test_an_update_of_a_tensor_that_was_not_found_is_an_error_and_no_dead_code():
    model = steps.net()
    optimizer = steps.sgd(model)
    bound = [p.__reduce_ex__ for p in model.parameters()]  # methods of tensors: nothing to look into

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        for method in bound:
            parameter = method.__self__
            if parameter.grad is not None:
                parameter.data.sub_(parameter.grad * 0.1)
        optimizer.step()
        return loss.detach()

    with pytest.raises(CaptureError, match="through an object that was not found") as refused:
        capture_step(step, (steps.batch(),))
    assert "parameter.grad" in refused.value.where
    assert "state=" in refused.value.next_step


def test_optimizer_state_that_is_no_dict_is_refused():
    model = steps.net()
    optimizer = steps.sgd(model)
    optimizer.state[model[0].weight] = torch.zeros(3)
    with pytest.raises(CaptureError, match=r"keeps a Tensor in optimizer\.state"):
        capture_step(steps.simple(model, optimizer), (steps.batch(),))

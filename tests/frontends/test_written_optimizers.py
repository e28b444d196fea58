"""Optimizers as people write them: state in tensors, counts in Python, branches on counts."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from frontends.steps import simple, update
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_like_eager, assert_same_bits, joined, planned


class Written(torch.optim.Optimizer):
    """Calls `update` for each parameter."""

    def __init__(self, parameters, **settings):
        super().__init__(parameters, {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1, **settings})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, self.state[parameter], group)


class Lion(Written):
    def update(self, p, state, group):
        if not state:
            state["exp_avg"] = torch.zeros_like(p)
        first, second = group["betas"]
        p.mul_(1 - group["lr"] * group["weight_decay"])
        direction = state["exp_avg"].clone().mul_(first).add(p.grad, alpha=1 - first).sign_()
        p.add_(direction, alpha=-group["lr"])
        state["exp_avg"].mul_(second).add_(p.grad, alpha=1 - second)


class Lamb(Written):
    """Counts in Python, and takes roots of what it counts."""

    def update(self, p, state, group):
        if not state:
            state["step"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
        first, second = group["betas"]
        state["step"] += 1
        state["m"].mul_(first).add_(p.grad, alpha=1 - first)
        state["v"].mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
        root = math.sqrt(1 - second ** state["step"])
        update = state["m"] / (1 - first ** state["step"]) / (state["v"].sqrt() / root + 1e-6)
        ratio = (p.norm() / update.norm().clamp(min=1e-6)).clamp(0, 10)
        p.add_(update * ratio, alpha=-group["lr"])


class Adan(Written):
    """Keeps the gradient of the step before, and replaces its tensors instead of writing them."""

    def update(self, p, state, group):
        count = state.get("count", 0) + 1
        first, second = group["betas"]
        difference = p.grad - state.get("before", p.grad)
        state["mean"] = state.get("mean", torch.zeros_like(p)).lerp(p.grad, 1 - first)
        state["slope"] = state.get("slope", torch.zeros_like(p)).lerp(difference, 1 - second)
        state["before"] = p.grad.clone()
        state["count"] = count
        p.sub_((state["mean"] / (1 - first**count) + state["slope"]) * group["lr"])


class Slow(Written):
    """Every third step is another one: two programs, and the count says which."""

    def update(self, p, state, group):
        if not state:
            state["count"], state["slow"], state["is_first"] = 0, p.clone(), True
        state["count"] += 1
        p.add_(p.grad, alpha=-group["lr"])
        if state["count"] % 3 == 0:
            state["slow"].lerp_(p, 0.5)
            p.copy_(state["slow"])


class Normed(Written):
    """Keeps a number that depends on the data."""

    def update(self, p, state, group):
        state["largest"] = max(0.9 * state.get("largest", 0.0), p.grad.norm().item())
        p.add_(p.grad, alpha=-group["lr"] / state["largest"])


class CountingGroup(Written):
    def __init__(self, parameters):
        super().__init__(parameters, count=0)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["count"] += 1
        super().step()

    def update(self, p, state, group):
        p.add_(p.grad, alpha=-group["lr"] / (1 - 0.9 ** group["count"]))


def factory_of(kind):
    def factory():
        model = nn.Linear(4, 3)
        return simple(model, kind(model.parameters())), torch.randn(5, 4)

    return factory


@pytest.mark.parametrize(
    "kinds",
    [(Lamb, Normed, CountingGroup), pytest.param((Lion, Lamb, Adan, Normed), marks=pytest.mark.slow)],
    ids=len,
)
def test_a_written_optimizer_gives_the_bits_of_eager(kinds):
    assert_same_bits(joined(*map(factory_of, kinds)))


@pytest.mark.slow
def test_one_that_does_something_else_at_some_calls_has_them_as_well():
    assert_same_bits(factory_of(Slow), steps=7)


def test_numbers_are_written_where_the_user_keeps_them():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = CountingGroup(model.parameters())
    lamb = Lamb(model.parameters())
    batch = torch.randn(5, 4)
    runs = [planned(simple(model, o), batch) for o in (optimizer, lamb)]
    for run in runs:
        for _ in range(3):
            run(batch)
        assert run.counts.replans == 0
    assert optimizer.param_groups[0]["count"] == 3
    assert [state["step"] for state in lamb.state.values()] == [3, 3]
    assert all(type(state["step"]) is int for state in lamb.state.values())


def test_a_rate_that_the_step_itself_sets_is_set_at_each_call():
    def make():
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

        def step(x):
            loss = update(model(x).square().mean(), optimizer)
            optimizer.param_groups[0]["lr"] *= 0.9
            return loss

        return (step,)

    assert_like_eager(make)


def test_a_count_that_is_loaded_is_seen():
    """State is read anew at each call: a count set back leads to the program of that count."""

    def make():
        model = nn.Linear(4, 3)
        optimizer = Slow(model.parameters())
        return simple(model, optimizer), optimizer

    def between(call, made):
        for state in made[1].state.values():
            state["count"] = {2: 1, 4: 5}.get(call, state["count"])

    assert assert_like_eager(make, 7, between).counts.replans == 0


class AskingForTheType(Written):
    def update(self, p, state, group):
        state["count"] = state.get("count", 0) + 1
        p.add_(p.grad, alpha=-group["lr"] * (state["count"] if isinstance(state["count"], int) else 1.0))


class Listing(Written):
    def update(self, p, state, group):
        state.setdefault("norms", []).append(p.grad.norm())


class Forgetting(Written):
    def update(self, p, state, group):
        if not state:
            state["mean"] = torch.zeros_like(p)
        else:
            p.sub_(state.pop("mean"))


class GrowingGroup(Written):
    def update(self, p, state, group):
        group["count"] = group.get("count", 0) + 1
        p.add_(p.grad, alpha=-group["lr"] / group["count"])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (AskingForTheType, "treats the numbers that it keeps in Python in another way"),
        (Listing, "keeps a list in optimizer.state"),
        (Forgetting, "removes 'mean' from the state of optimizer"),
        (GrowingGroup, r"writes optimizer\.param_groups\[0\]\['count'\]"),
    ],
)
def test_what_cannot_be_written_anew_at_each_call_is_refused(kind, reason):
    step, batch = factory_of(kind)()
    with pytest.raises(CaptureError, match=reason):
        capture_step(step, (batch,))


class LooksAround(torch.optim.SGD):
    """Reads a number that it keeps for a tensor of nobody's."""

    def step(self, closure=None):
        for kept in self.state.values():
            if "scale" in kept:
                self.param_groups[0]["params"][0].grad.mul_(kept["scale"])
        return super().step(closure)


def test_numbers_in_state_of_a_tensor_that_is_gone_are_refused():
    model = nn.Linear(4, 3)
    optimizer = LooksAround(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.state[nn.Parameter(torch.ones(2))] = {"scale": 0.5}

    def step(batch):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    with pytest.raises(CaptureError, match="keeps state that belongs to no parameter"):
        capture_step(step, (torch.randn(5, 4),))

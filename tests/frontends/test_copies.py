"""Copies of modules and optimizers that a step makes for itself: inner loops of meta-learning."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from frontends import steps
from support.step_checks import assert_like_eager


def inner_loop(kind, **options):
    def make():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 2))
        model.register_buffer("offset", torch.zeros(2))
        outer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

        def step(x):
            fast = copy.deepcopy(model)
            inner = kind(fast.parameters(), **options)
            for _ in range(2):
                inner.zero_grad()
                (fast(x) + fast.offset).square().mean().backward()
                inner.step()
            outer.zero_grad()
            for p, q in zip(model.parameters(), fast.parameters(), strict=True):
                p.grad = p.detach() - q.detach()
            outer.step()
            return fast(x).detach().mean()

        return step, model

    return make


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, marks=pytest.mark.slow),
        (torch.optim.Adam, {"lr": 0.01}),
    ],
    ids=["sgd", "adam"],
)
def test_an_optimizer_of_a_copy_updates_the_copy(kind, options):
    assert_like_eager(inner_loop(kind, **options))


def test_copies_are_of_the_kind_of_what_is_copied():
    def make():
        torch.manual_seed(0)
        model = steps.net()
        frozen = model[0].weight.requires_grad_(False)
        scale = torch.ones(3, requires_grad=True)

        def step(x):
            twin, again = copy.deepcopy((frozen, [frozen, scale]))
            kinds = (isinstance(twin, nn.Parameter), twin is again[0], twin.requires_grad)
            loss = (model(x) * again[1]).square().mean()
            loss.backward()
            scale.grad = again[1].grad.clone()
            with torch.no_grad():
                scale.sub_(scale.grad, alpha=0.1)
            model.zero_grad()
            return loss.detach(), kinds

        return step, model

    run = assert_like_eager(make, calls=2)
    assert run(steps.batch())[1] == (True, True, False)

"""What autograd sees of what a step hands out: as in eager, or refused where a gradient would be lost without a word."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from neaptide import compile_step
from neaptide.errors import CaptureError, StepMismatch
from neaptide.frontends.torch_step import capture_step
from neaptide.frontends.trace.trace_outputs import OpenResultError
from support.step_checks import planned
from support.together import together


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def to_autograd(results):
    return [(r.requires_grad, r.is_leaf, r.grad_fn is None) for r in results]


class Open:
    """Steps that return what would be differentiated outside of them; `says` is the line of each."""

    def __init__(self):
        self.net, self.head = encoder(), nn.Linear(4, 3)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def features(self, x):
        return self.net(x)

    def a_view(self, x):
        rows = self.net(x)
        return rows[:, 1:]

    def in_a_dict(self, x):
        found = {"mean": self.net(x).mean(), "rows": x.sum()}
        return [found, "text"]

    def a_loss(self, x):
        return functional.mse_loss(self.net(x), x[:, :4])

    def for_a_second_order(self, x):
        loss = self.net(x).square().sum()
        (gradient,) = torch.autograd.grad(loss, [self.net[0].weight], create_graph=True)
        return gradient.square().sum()

    def beside_a_trained_head(self, x):
        features = self.net(x)
        self.optimizer.zero_grad()
        self.head(features.detach()).sum().backward()
        self.optimizer.step()
        return features

    def beside_a_trained_penalty(self, x):
        features = self.net(x)
        self.optimizer.zero_grad()
        # The parameters are leaves of both graphs, but no node that keeps something is.
        sum(p.square().sum() for p in self.net.parameters()).backward()
        self.optimizer.step()
        return features

    def changed_in_place(self, x):
        out = self.net(x)
        out.mul_(2.0)
        return out


OPEN = [name for name in vars(Open) if not name.startswith("_")]


@together("name", OPEN, quick=("features", "for_a_second_order", "beside_a_trained_head", "changed_in_place"))
def test_what_is_differentiated_outside_is_refused_with_line_reason_and_remedy(name):
    step = getattr(Open(), name)
    with pytest.raises(OpenResultError, match="no backward of the step goes through it") as caught:
        capture_step(step, (torch.randn(5, 6),))
    assert "test_attachment.py" in caught.value.where
    assert "would not be trained" in caught.value.why
    assert "backward inside the step" in caught.value.next_step


def test_a_compiled_backbone_is_refused_at_its_first_call():
    net, head = encoder(), nn.Linear(4, 1)
    features = compile_step(net, budget="100%")
    with pytest.raises(OpenResultError):
        head(features(torch.randn(5, 6))).sum().backward()


def test_the_same_call_without_gradients_is_planned():
    trainer = Open()
    x = torch.randn(5, 6)
    with torch.no_grad():
        out = planned(trainer.features, x)(x)
        assert torch.equal(out, trainer.features(x))
    assert to_autograd([out]) == [(False, True, True)]


class Closed:
    """Steps that have done their backward; each returns more than a detached loss."""

    def __init__(self):
        self.net = encoder()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.kept = {}
        self.average = torch.zeros(4)

    def update(self, loss, **options):
        self.optimizer.zero_grad()
        loss.backward(**options)
        self.optimizer.step()
        return loss

    def the_loss(self, x):
        return [self.update(self.net(x).square().mean())]

    def loss_and_logits(self, x):
        out = self.net(x)
        return [self.update(out.logsumexp(1).sum()), out, out.softmax(-1), out[0], out.detach()]

    def with_a_kept_graph(self, x):
        return [self.update(self.net(x).abs().mean(), retain_graph=True)]

    def a_leaf(self, x):
        moved = (x + 1.0).detach().requires_grad_()
        return [self.update(self.net(x).square().mean()), moved]

    def a_gradient(self, x):
        loss = self.net(x).square().mean()
        gradients = torch.autograd.grad(loss, list(self.net.parameters()))
        return [loss, *gradients]

    def by_a_hook(self, x):
        with torch.no_grad():
            self.average.lerp_(self.net(x)[0], 0.1)
        out = self.net(x)
        self.kept["features"] = out.relu()
        return [self.update(self.kept["features"].sum())]


CLOSED = [name for name in vars(Closed) if not name.startswith("_") and name != "update"]


@together("name", CLOSED, quick=("loss_and_logits", "a_leaf", "by_a_hook"))
def test_results_of_a_step_that_is_done_look_to_autograd_as_in_eager(name):
    eager, ours = Closed(), Closed()
    x = torch.randn(5, 6)
    run = planned(getattr(ours, name), x)
    for _ in range(2):
        expected, found = getattr(eager, name)(x), run(x)
        assert to_autograd(found) == to_autograd(expected)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert to_autograd(ours.kept.values()) == to_autograd(eager.kept.values())
    assert found[0].item() == expected[0].item()


@together("name", ["the_loss", "loss_and_logits", "by_a_hook"], quick=("loss_and_logits",))
def test_a_second_backward_outside_is_an_error_as_in_eager(name):
    eager, ours = Closed(), Closed()
    x = torch.randn(5, 6)
    with pytest.raises(RuntimeError, match="second time"):
        getattr(eager, name)(x)[0].backward()
    run = planned(getattr(ours, name), x)
    with pytest.raises(StepMismatch, match=r"goes through one of its results[\s\S]*inside the step"):
        run(x)[0].backward()


def test_a_leaf_that_is_returned_takes_gradients_of_what_comes_behind():
    trainer = Closed()
    x = torch.randn(5, 6)
    leaf = planned(trainer.a_leaf, x)(x)[1]
    (2.0 * leaf).sum().backward()
    assert torch.equal(leaf.grad, torch.full_like(leaf, 2.0))


def test_a_result_that_has_a_gradient_of_its_own_is_refused():
    net = encoder()

    def step(x):
        moved = x.detach().clone().requires_grad_()
        net(moved).sum().backward()
        return moved

    with pytest.raises(CaptureError, match="with its gradient"):
        capture_step(step, (torch.randn(5, 6),))

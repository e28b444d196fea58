"""`requires_grad` that a step sets is an effect of the step, and the flags at entry choose the program."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_like_eager, planned


def critic_and_writer(*, by_attribute=False, off=False, back=False):
    """Two networks that take turns; the flags of one are switched for the other's turn."""
    torch.manual_seed(0)
    writer, critic = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    critic.requires_grad_(not off)
    writes = torch.optim.Adam(writer.parameters(), 0.01)
    checkers = torch.optim.SGD(critic.parameters(), 0.1, momentum=0.9)

    def switch(wanted):
        if by_attribute:
            for parameter in critic.parameters():
                parameter.requires_grad = wanted
        else:
            critic.requires_grad_(wanted)

    def step(x):
        switch(True)
        checkers.zero_grad()
        (critic(writer(x).detach()).mean() - critic(x.repeat(1, 2)[:, :6]).mean()).backward()
        checkers.step()
        switch(False)
        writes.zero_grad()
        loss = -critic(writer(x)).mean()
        loss.backward()
        writes.step()
        if back:
            switch(True)
        return loss.detach()

    return step, writer, critic


@pytest.mark.parametrize("options", [{}, {"by_attribute": True}, {"off": True}, {"back": True}], ids=str)
def test_flags_that_a_step_switches_are_as_in_eager(options):
    run = assert_like_eager(lambda: critic_and_writer(**options))
    assert run.counts.replans == 0, run.counts.describe()


def test_flags_that_the_caller_switches_between_calls_choose_a_program():
    def between(call, made):
        if call in (1, 2):
            made[2].requires_grad_(call == 1)

    run = assert_like_eager(critic_and_writer, calls=5, between=between)
    assert run.counts.replans == 1, (
        run.counts.describe()
    )  # set flags beside optimizer state are a kind of their own


def test_a_step_that_freezes_a_layer_at_each_call_keeps_its_gradient():
    def make():
        torch.manual_seed(0)
        model = steps.net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x):
            model.requires_grad_(True)
            model(x).square().mean().backward()
            optimizer.step()
            next(model.parameters()).requires_grad_(False)
            return next(model.parameters()).grad.norm()

        return step, model

    assert_like_eager(make)


def test_a_capture_leaves_the_flags():
    step, _, critic = critic_and_writer()
    captured = capture_step(step, (torch.randn(5, 4),))
    assert all(parameter.requires_grad for parameter in critic.parameters())
    assert captured.state.flagged == {"critic.0.weight", "critic.0.bias", "critic.2.weight", "critic.2.bias"}
    assert [dict(program.entry.flags)["critic.0.bias"] for program in captured.programs] == [False, True]


def test_a_flag_of_the_batch_is_left_as_the_step_leaves_it():
    model = steps.net()
    optimizer = steps.sgd(model)

    def step(x):
        x.requires_grad_()
        loss = model(x).square().mean()
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + slope.square().sum()
        loss.backward(inputs=list(model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run = planned(step, steps.batch())
    for _ in range(2):
        batch = steps.batch()
        run(batch)
        assert batch.requires_grad
    assert run.counts.replans == 0

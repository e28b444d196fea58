"""Gradients, clipping, optimizers and hooks: captured programs update with the bits of eager."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from frontends.steps import batch, net, sgd, simple, update
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_same_bits, joined, planned

# -- gradients


def accumulation_over_calls(**options):
    """Gradients pile up over calls; another function would zero them."""
    model = net()
    optimizer = sgd(model, **options)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, batch()


def zeroed_first(set_to_none=True):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, batch()


def zeroed_last_in_place():
    model = net()
    optimizer = sgd(model)

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad.zero_()
        return loss.detach()

    return step, batch()


def micro_batches():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad()
        total = 0.0
        for part in x.chunk(3):
            loss = model(part).square().mean() / 3
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return step, batch()


def functional_gradients():
    model = net()
    parameters = list(model.parameters())

    def step(x):
        loss = model(x).square().mean()
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=0.1)
        return loss.detach()

    return step, batch()


def gradient_penalty():
    model = net()
    optimizer = sgd(model)

    def step(x):
        loss = model(x).square().mean()
        first = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        (loss + sum(g.square().sum() for g in first)).backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, batch()


def frozen_part():
    model = net()
    model[0].requires_grad_(False)
    return simple(model, sgd(model, momentum=0.9)), batch()


def test_gradients():
    some = (accumulation_over_calls, zeroed_last_in_place, micro_batches, gradient_penalty, frozen_part)
    assert_same_bits(joined(*some))


@pytest.mark.slow
def test_more_gradients():
    kept = lambda: zeroed_first(set_to_none=False)  # noqa: E731
    with_momentum = lambda: accumulation_over_calls(momentum=0.9)  # noqa: E731
    assert_same_bits(joined(with_momentum, zeroed_first, kept, functional_gradients))


def test_accumulated_gradients_get_a_program_of_their_own():
    step, x = accumulation_over_calls()
    captured = capture_step(step, (x,))
    assert not captured.first[0].entry.gradients
    assert set(captured.steady.entry.gradients) == set(captured.steady.kept_gradients)
    step, x = zeroed_first()
    assert capture_step(step, (x,)).steady.ignores_gradients


def test_gradients_that_are_zeroed_first_need_no_program_of_their_own():
    model = net()
    optimizer = sgd(model)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = planned(step, batch())
    run(batch())
    model.zero_grad()
    run(batch())
    assert run.counts.replans == 0
    captured = capture_step(step, (batch(),))
    assert not captured.first


def clipped(clip, foreach):
    def factory():
        model = net()
        optimizer = torch.optim.AdamW(model.parameters())

        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            norm = clip(model.parameters(), 0.01, foreach=foreach)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach(), norm

        return step, batch()

    return factory


def test_gradient_clipping():
    clips = (nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_)
    assert_same_bits(joined(*(clipped(clip, foreach) for clip in clips for foreach in (None, True))))


# -- hooks


def gradient_hook():
    model = net()
    scale = torch.tensor(0.5)
    model[0].weight.register_hook(lambda g: g * scale)
    return simple(model, sgd(model)), batch()


def forward_hooks():
    model = net()
    shift = torch.tensor(0.5)
    model[0].register_forward_hook(lambda _m, _i, out: out + shift)
    model[2].register_forward_pre_hook(lambda _m, args: (args[0] * 2,))
    return simple(model, sgd(model)), batch()


def backward_hooks():
    model = net()
    model[1].register_full_backward_hook(lambda _m, _i, _o: None)
    model[2].register_full_backward_hook(lambda _m, inputs, _o: (inputs[0] * 2,))
    model[2].register_full_backward_pre_hook(lambda _m, outputs: (outputs[0] * 3,))
    return simple(model, sgd(model)), batch()


def tensor_hook_inside():
    model = net()
    optimizer = sgd(model)

    def step(x):
        hidden = model[0](x)
        hidden.register_hook(lambda g: g.clamp(-0.01, 0.01))
        return update(model[2](hidden.tanh()).square().mean(), optimizer)

    return step, batch()


def optimizer_hooks():
    model = net()
    optimizer = sgd(model)

    def before(optimizer, _args, _kwargs):
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad.mul_(0.5)

    @torch.no_grad()
    def after(optimizer, _args, _kwargs):
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.mul_(0.99)

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
    return simple(model, optimizer), batch()


def test_hooks_are_kept():
    assert_same_bits(
        joined(gradient_hook, forward_hooks, backward_hooks, tensor_hook_inside, optimizer_hooks)
    )


def test_post_accumulate_hooks_are_refused_by_name():
    model = net()
    optimizer = sgd(model)
    model[2].bias.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(CaptureError, match=r"2\.bias has a post-accumulate-gradient hook"):
        capture_step(simple(model, optimizer), (batch(),))

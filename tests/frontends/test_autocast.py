"""Casts of weights under autocast: kept, shared and forgotten as eager does."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from frontends.steps import update
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step
from support.step_checks import assert_same_bits, planned
from support.together import together


def autocast(dtype=torch.bfloat16, **options):
    return torch.autocast("cpu", dtype, **options)


def stepping(loss_of):
    """A step that trains one layer, which the loss uses several times."""
    layer, head = nn.Linear(24, 24), nn.Linear(24, 24, bias=False)
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.3)

    def step(x):
        return update(loss_of(layer, head, x), optimizer)

    return step, torch.randn(96, 24)


def thrice(layer, head, x):
    with autocast():
        for _ in range(3):
            x = torch.tanh(layer(x))
    return head(x.float()).square().mean()


def two_regions(layer, head, x):
    with autocast():
        h = layer(x)
    with autocast():
        h = layer(torch.tanh(h))
    return (h.float() + head(x)).square().mean()


def nested(layer, head, x):
    with autocast():
        h = layer(x)
        with autocast():
            h = layer(h)
        with autocast(enabled=False):
            h = layer(h.float()) + head(h.float())
        h = layer(h) + head(x)
    return h.float().square().mean()


def without_cache(layer, head, x):
    with autocast(cache_enabled=False):
        h = layer(torch.tanh(layer(x)))
        with autocast(cache_enabled=True):
            h = head(torch.tanh(head(h)))
    return h.float().square().mean()


def cleared(layer, head, x):
    with autocast():
        h = layer(x)
        torch.clear_autocast_cache()
        h = head(layer(torch.tanh(h)))
    return h.float().square().mean()


def first_without_gradient(layer, head, x):
    with autocast():
        with torch.no_grad():
            target = head(x).sign()
        return (head(layer(x)) * target).float().mean() + layer(x).float().square().mean()


def half(layer, head, x):
    with autocast(torch.float16):
        h = head(layer(torch.tanh(layer(x))))
    return h.float().square().mean()


def updated_inside(layer, head, x):
    with autocast():
        gradient = torch.autograd.grad(layer(x).float().square().mean(), layer.weight)[0]
        with torch.no_grad():
            layer.weight.sub_(0.1 * gradient)
        return head(layer(x)).float().square().mean()


def checkpointed(layer, head, x):
    """A reentrant one runs without gradients first, and eager keeps those casts for the rest of the region."""
    with autocast():
        h = checkpoint(layer, x.detach().requires_grad_(), use_reentrant=True)
        h = checkpoint(lambda h: layer(torch.tanh(layer(h))), h, use_reentrant=True)
        h = checkpoint(head, h, use_reentrant=False)
        return (layer(h) + head(x)).float().square().mean()


LOSSES = (checkpointed, thrice, two_regions, nested, without_cache, cleared, first_without_gradient, half)


def test_gradients_meet_in_the_dtype_in_which_they_meet_in_eager():
    every = lambda layer, head, x: sum(loss_of(layer, head, x) for loss_of in LOSSES)  # noqa: E731
    assert_same_bits(lambda: stepping(every), steps=2)
    assert_same_bits(lambda: stepping(updated_inside), steps=2)


@pytest.mark.slow
@together("loss_of", LOSSES)
def test_each_of_them_meets_in_the_dtype_of_eager(loss_of):
    assert_same_bits(lambda: stepping(loss_of), steps=2)


def test_a_weight_is_cast_once_in_a_region():
    step, x = stepping(thrice)
    graph = capture_step(step, (x,)).steady.graph
    lowered = [graph.values[n.outputs[0]].dtype for n in graph.nodes if "_to_copy" in n.op].count("bfloat16")
    assert lowered == len(["weight", "bias", "batch", "gradient"])


def test_backward_inside_the_region():
    def factory():
        layer = nn.Linear(24, 24)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.3)

        @autocast()
        def step(x):
            return update(F.gelu(layer(F.gelu(layer(x)))).float().square().mean(), optimizer)

        return step, torch.randn(96, 24)

    assert_same_bits(factory)


@pytest.mark.parametrize("is_on", [True, False])
def test_a_region_around_the_call_that_keeps_casts_is_refused(is_on):
    step, x = stepping(thrice)
    with autocast(enabled=is_on), pytest.raises(CaptureError, match="keeps its casts") as refused:
        capture_step(step, (x,))
    assert "cache_enabled=False" in refused.value.next_step
    run = planned(step, x, on_mismatch="error")
    with autocast(enabled=is_on), pytest.raises(Exception, match="autocast"):
        run(x)

"""A function that keeps what it returned must not keep a tensor of a trace."""

from __future__ import annotations

import functools

import pytest
import torch

from frontends import steps
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step


@functools.cache
def ramp(count):
    return torch.arange(count).float()


@functools.lru_cache(maxsize=4)
def pair(count):
    return torch.ones(count), {"scale": torch.full((count,), 2.0)}


@functools.cache
def doubled(count):
    return 2 * count


def step_with(scale):
    model = steps.net()
    optimizer = steps.sgd(model)

    def step(x):
        (model(x) * scale()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize(
    ("function", "scale"),
    [(ramp, lambda: ramp(3)), (pair, lambda: pair(3)[1]["scale"])],
    ids=["a tensor", "a tensor in a dict"],
)
def test_a_cache_is_left_without_tensors_of_the_trace(function, scale):
    with pytest.raises(CaptureError, match="in its cache") as refused:
        capture_step(step_with(scale), (steps.batch(),))
    assert function.__name__ in refused.value.where
    assert type(scale()) is torch.Tensor
    function.cache_clear()


def test_a_cache_of_plain_values_is_left_alone():
    doubled(4)
    capture_step(step_with(lambda: doubled(3)), (steps.batch(),))
    assert doubled.cache_info().currsize == 2
    doubled.cache_clear()

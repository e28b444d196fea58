"""A capture goes over to other objects of the same factory, whatever numbers tell those apart."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.errors import PlanMismatch
from neaptide.frontends.torch_step import capture_step, rebind_step


def with_hooks(scale=2.0):
    model = steps.net()
    model.handle = model[0].register_forward_hook(lambda module, args, out: out * scale)
    return steps.simple(model, steps.sgd(model))


def with_a_library_module_that_keeps_its_handle():
    model = steps.net()
    model[1].handle = model[1].register_forward_pre_hook(lambda module, args: None)
    model[1].identity = id(model[1])
    return steps.simple(model, steps.sgd(model))


def compiled():
    model = steps.net()
    return steps.simple(torch.compile(model, backend="eager"), steps.sgd(model))


def with_a_class_of_its_own():
    class Own(nn.Module):
        def forward(self, x):
            return x * 2.0

    model = nn.Sequential(steps.net(), Own())
    return steps.simple(model, steps.sgd(model))


MAKERS = [with_hooks, with_a_library_module_that_keeps_its_handle, compiled, with_a_class_of_its_own]


@pytest.mark.parametrize("make", MAKERS)
def test_objects_of_the_same_factory_agree(make):
    x = steps.batch()
    captured = capture_step(make(), (x,))
    other = rebind_step(captured, make(), (x,))
    assert other.agrees((x,), {})


def test_another_number_in_a_hook_is_another_program():
    x = steps.batch()
    captured = capture_step(with_hooks(), (x,))
    with pytest.raises(PlanMismatch, match=r"scale is 3\.0, was 2\.0"):
        rebind_step(captured, with_hooks(3.0), (x,))


def test_a_hook_less_is_another_program():
    x = steps.batch()
    captured = capture_step(with_hooks(), (x,))
    bare = steps.net()
    with pytest.raises(PlanMismatch, match="is gone"):
        rebind_step(captured, steps.simple(bare, steps.sgd(bare)), (x,))


def test_what_a_library_hangs_on_the_classes_of_torch_is_no_change(monkeypatch):
    x = steps.batch()
    make = lambda: steps.simple(model := steps.net(), steps.sgd(model))  # noqa: E731
    captured = capture_step(make(), (x,))
    monkeypatch.setattr(nn.Module, "foreign_method", lambda self: None, raising=False)
    assert captured.agrees((x,), {})
    assert rebind_step(captured, make(), (x,)).agrees((x,), {})


@pytest.mark.parametrize("name", ["_call_impl", "__getattr__", "forward", "__call__"])
def test_what_torch_asks_for_is_a_change(monkeypatch, name):
    x = steps.batch()
    make = lambda: steps.simple(model := steps.net(), steps.sgd(model))  # noqa: E731
    captured = capture_step(make(), (x,))
    original = getattr(nn.Module, name)
    monkeypatch.setattr(nn.Module, name, lambda *args: original(*args))  # noqa: PLW0108
    assert not captured.agrees((x,), {})
    with pytest.raises(PlanMismatch):
        rebind_step(captured, make(), (x,))

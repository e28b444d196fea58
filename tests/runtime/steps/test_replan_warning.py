"""A step that is planned anew at every call says so once, with what changes and what to do."""

from __future__ import annotations

import types
import warnings

import pytest
import torch

from frontends.steps import batch, net, sgd, simple
from neaptide.runtime.steps.call_counts import ReplanWarning
from support.step_checks import planned


def told(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in found if issubclass(one.category, ReplanWarning)]


def test_the_value_that_changes_is_named_with_its_last_two_values():
    settings = types.SimpleNamespace(words=["a"])
    model = net()
    step = simple(model, sgd(model), lambda out: out.square().mean() * len(settings.words[0]))
    run = planned(step, batch())

    def call(count):
        settings.words[0] = "a" * count
        run(batch())

    assert told(lambda: [call(count) for count in (1, 2, 3, 4)]) == []
    (message,) = told(lambda: [call(count) for count in (5, 6, 7)])
    assert "\n" not in message
    assert "settings.words[0] is aaaaa, was aaaa;" in message
    assert "keep what changes in a tensor" in message


@pytest.mark.parametrize("has_plans", [True, False])
def test_shapes_are_told_apart_from_values(has_plans):
    model = net()
    run = planned(simple(model, sgd(model)), batch())
    sizes = (6, 3, 6, 4, 6, 5, 6, 7, 6) if has_plans else (3, 4, 5, 7)
    messages = told(lambda: [run(torch.randn(size, 4)) for size in sizes])
    assert len(messages) == (not has_plans)
    assert all("has shape (7, 4), was (5, 4); say which dims vary (dynamic=...)" in one for one in messages)

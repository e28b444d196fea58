"""Which calls a capture with dims that vary is for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from frontends.steps import update
from neaptide.frontends.guards.fact_words import described
from neaptide.frontends.torch_step import capture_step, rebind_step
from support.step_checks import needs_varying_dims
from support.together import together

pytestmark = needs_varying_dims


def make():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        return update((model(batch["x"]) * batch["w"].unsqueeze(-1)).sum(), optimizer)

    return step


def batch_of(rows, weights=None, columns=4):
    return {"x": torch.zeros(rows, columns), "w": torch.zeros(rows if weights is None else weights)}


@pytest.fixture
def captured():
    return capture_step(make(), (batch_of(3),), dynamic={"batch": {0: (2, 9)}})


def differences(captured, batch):
    return captured.read_signature((batch,), {}).differences(captured.signature)


@pytest.mark.parametrize("rows", [2, 3, 7, 9])
def test_sizes_in_range_agree(captured, rows):
    assert captured.agrees((batch_of(rows),), {})
    assert captured.agrees((batch_of(rows),), {})  # by the fast way, too
    assert differences(captured, batch_of(rows)) == ()


@together(
    ("batch", "told"),
    [
        (batch_of(1), "the size batch_0 is 1, was 2 to 9"),
        (batch_of(10), "the size batch_0 is 10, was 2 to 9"),
        (batch_of(3, 4), "batch['w'] has shape (4,), was (batch_0,)"),
        (batch_of(3, columns=5), "has shape (batch_0, 5), was (batch_0, 4)"),
        ({"x": torch.zeros(4, 3).t(), "w": torch.zeros(3)}, "has strides (1, 3), was (4, 1)"),
        ({"x": torch.zeros(3, 4), "w": torch.zeros(())}, "has shape ()"),
    ],
)
def test_other_sizes_do_not_and_the_difference_is_told(captured, batch, told):
    assert captured.agrees((batch_of(5),), {})
    assert not captured.agrees((batch,), {})
    assert any(told in line for line in differences(captured, batch)), differences(captured, batch)


def test_a_size_of_one_may_have_any_stride(captured):
    odd = torch.zeros(1, 4).as_strided((1, 4), (77, 1))
    own = captured.sizes.geometry(0, odd, {"batch_0": 1})
    assert own.strides == captured.sizes.geometry(0, torch.zeros(1, 4), {"batch_0": 1}).strides


def test_a_relation_is_a_fact():
    def step(x):
        return x.view(x.shape[0] // 4, 4, 2).sum()

    captured = capture_step(step, (torch.zeros(8, 2),), dynamic={"x": {0: (4, 64)}})
    assert captured.agrees((torch.zeros(12, 2),), {})
    assert not captured.agrees((torch.zeros(13, 2),), {})
    assert any("False" in line for line in differences(captured, torch.zeros(13, 2)))


def test_a_fixed_size_agrees_only_with_itself():
    def step(x):
        return sum(x[place] for place in range(x.shape[0]))

    captured = capture_step(step, (torch.zeros(3, 4),), dynamic={"x": {0: (2, 64)}})
    assert captured.agrees((torch.zeros(3, 4),), {})
    assert not captured.agrees((torch.zeros(4, 4),), {})


def test_another_object_of_the_same_make_keeps_the_guard(captured):
    again = rebind_step(captured, make(), (batch_of(5),))
    assert again.agrees((batch_of(9),), {})
    assert not again.agrees((batch_of(10),), {})


def test_facts_are_written_with_the_names_of_dims(captured):
    facts = [described(fact) for _, fact in captured.signature.named_batch()]
    assert "float32 of shape (batch_0, 4) with strides (4, 1)" in facts
    assert "2 to 9" in facts

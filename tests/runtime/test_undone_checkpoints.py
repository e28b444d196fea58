"""`checkpoints="undo"` gives the state of the step without checkpoints, wherever it is said."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import neaptide
from neaptide.errors import UsageError


def steps_and_model(*, checkpointed: bool):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        out = checkpoint(model, x, use_reentrant=False) if checkpointed else model(x)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, model


def after_two(step, model):
    torch.manual_seed(1)
    for _ in range(2):
        step(torch.randn(8, 6))
    return model.state_dict()


def assert_equal_state(found, expected):
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


OPTIONS = {"budget": "100%", "time_limit_s": None, "work_limit": 1}


def test_a_planned_step_and_a_saved_plan_leave_the_state_of_plain_calls():
    expected = after_two(*steps_and_model(checkpointed=False))
    step, model = steps_and_model(checkpointed=True)
    assert_equal_state(after_two(neaptide.compile_step(step, checkpoints="undo", **OPTIONS), model), expected)

    step, model = steps_and_model(checkpointed=True)
    made = neaptide.plan(step, torch.randn(8, 6), checkpoints="undo", **OPTIONS)
    read = neaptide.Plan.from_json(made.to_json())
    assert read.checkpoints == "undo"
    assert_equal_state(after_two(neaptide.apply(read, step), model), expected)


def test_by_default_the_state_is_that_of_checkpointed_calls():
    expected = after_two(*steps_and_model(checkpointed=True))
    assert expected["1.num_batches_tracked"] == 4
    step, model = steps_and_model(checkpointed=True)
    assert_equal_state(after_two(neaptide.compile_step(step, **OPTIONS), model), expected)


def test_another_word_is_refused():
    step, _ = steps_and_model(checkpointed=True)
    with pytest.raises(UsageError, match="checkpoints='drop'"):
        neaptide.compile_step(step, budget="100%", checkpoints="drop")

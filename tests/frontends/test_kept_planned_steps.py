"""A step may close over the object that keeps its own planned step: neaptide does not look through itself."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from frontends.steps import update
from neaptide import compile_step
from neaptide.errors import CaptureError
from neaptide.frontends.source import users_code


class Trainer:
    """Keeps what it plans, and shows where it is called from when asked to."""

    def __init__(self, *, traced=False):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.shows_calls = traced
        self.helpers = {}

    def step(self, x):
        if self.shows_calls:
            self.helpers["calls"] = len(inspect.stack())
        return update(self.model(x).square().mean(), self.optimizer)

    def plan(self):
        self.fast = compile_step(self.step, budget="100%", time_limit_s=1)
        self.helpers["fast"] = self.fast
        return self


def test_an_object_that_keeps_its_planned_step_trains_as_eager():
    x = torch.randn(3, 4)
    eager, trainer = Trainer(), Trainer().plan()
    assert [trainer.fast(x) for _ in range(3)] == [eager.step(x) for _ in range(3)]
    assert trainer.fast.counts.replans == 0


def test_looking_at_the_calls_is_refused_at_the_line_of_the_step():
    with pytest.raises(CaptureError, match="looks at the calls") as caught:
        Trainer(traced=True).plan().fast(torch.randn(3, 4))
    assert "inspect.stack()" in caught.value.where


def test_all_of_neaptide_but_its_zoo_counts_as_a_library():
    root = users_code.__file__.rpartition("frontends")[0]
    assert users_code.is_library_file(root + "cost/pace.py")
    assert users_code.is_ours(root + "budget.py")
    assert not users_code.is_ours(root + "zoo/gpt2.py")

"""Data that is too large to be compared at each call is no part of a program: a step that reads it is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from frontends import steps
from neaptide.errors import CaptureError
from neaptide.frontends.objects.values import MAX_CONTAINER, MAX_CONTENT_BYTES
from neaptide.frontends.torch_step import capture_step


class Holder:
    def __init__(self, data):
        self.data = data
        self.model = nn.Linear(4, 3)
        self.optimizer = steps.sgd(self.model)

    def step(self, batch, read=False):
        number = float(self.data[3]) if read else 1.0
        return steps.update(self.model(batch).square().mean() * number, self.optimizer)


DATA = {
    "list": lambda: [1.0] * (MAX_CONTAINER + 1),
    "array": lambda: np.ones(MAX_CONTENT_BYTES // 8 + 1),
    "set": lambda: dict.fromkeys(range(MAX_CONTAINER + 1), 1.0),
}


@pytest.mark.parametrize("kind", DATA)
def test_large_data_that_the_step_reads_is_refused(kind):
    holder = Holder(DATA[kind]())
    before = holder.data
    with pytest.raises(CaptureError, match=r"reads self\.data, which is large") as caught:
        capture_step(holder.step, (steps.batch(), True))
    assert "self.data[3]" in caught.value.where
    assert holder.data is before


@pytest.mark.parametrize("kind", DATA)
def test_large_data_that_the_step_leaves_alone_is_no_matter(kind):
    holder = Holder(DATA[kind]())
    before = holder.data
    capture_step(holder.step, (steps.batch(),))
    assert holder.data is before


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_are_refused():
    model = torch.jit.script(nn.Linear(4, 3))
    outer = nn.Sequential(nn.Tanh(), model)
    for each in (model, outer):
        with pytest.raises(CaptureError, match="cannot be part of a captured step") as caught:
            capture_step(steps.simple(each, steps.sgd(outer)), (steps.batch(),))
        assert "TorchScript" in caught.value.why

"""A capture leaves the globals of every library as they were."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from frontends.global_snapshot import Snapshot
from neaptide import zoo
from neaptide.errors import CaptureError
from neaptide.frontends.torch_step import capture_step

pytest.importorskip("transformers")
SLOW = pytest.mark.slow


def warm_up():
    """What torch and sympy make when they are first used is no trace of a capture, nor are remains of other tests."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    capture_step(step, (torch.randn(2, 3),))
    gc.collect()


@pytest.mark.parametrize(
    "name",
    ["mlp", *(pytest.param(name, marks=SLOW) for name in ("gpt2", "llama", "vit", "unet2d", "resnet50"))],
)
def test_a_zoo_model_is_captured_without_a_change_in_any_library(name):
    step, batch = zoo.factory(f"{name}@tiny")()
    warm_up()
    before = Snapshot()
    capture_step(step, (batch,))
    assert before.changes() == []
    assert before.left_by("neaptide") == []


def test_a_refused_step_leaves_no_change_either():
    warm_up()
    before = Snapshot()
    with pytest.raises(CaptureError):
        capture_step(lambda x: float(x.sum()) * torch.nonzero(x), (torch.randn(3),))
    assert before.changes() == []
    assert before.left_by("neaptide") == []

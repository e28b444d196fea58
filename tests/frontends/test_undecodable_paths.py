"""A script in a folder whose name is no text is captured as any other."""

from __future__ import annotations

import os

import torch
from torch import nn

from support.step_checks import planned

SOURCE = """
def step(x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
"""


def made():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    names = {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "__name__": "train"}
    exec(compile(SOURCE, os.fsdecode(b"/runs/\xff\xfe/train.py"), "exec"), names)
    return names["step"]


def test_numbers_of_the_optimizer_are_traced_from_such_a_path():
    x = torch.randn(2, 3)
    eager, step = made(), planned(made(), x)
    assert [step(x) for _ in range(2)] == [eager(x) for _ in range(2)]

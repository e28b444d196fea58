"""A refusal that reaches the user's script is short: its message stands last, and no cause says the same at length."""

from __future__ import annotations

import traceback

import pytest
import torch
from torch import nn

from neaptide import compile_step
from neaptide.errors import CaptureError

MOST_LINES = 40  # of which the user's call and neaptide's way to the capture take three each

model = nn.Linear(3, 2)
seen = []


def branches(x):
    loss = model(x).sum()
    if loss > 0:
        loss = loss * 2
    loss.backward()
    return loss.detach()


def selects(x):
    out = model(x)
    loss = out[out > 0].sum()
    loss.backward()
    return loss.detach()


def counts(x):
    seen.append(1)
    return model(x).sum()


def reads_a_file(x):
    with open(__file__) as file:  # noqa: PTH123
        return model(x).sum() * len(file.readline())


def meets_an_unknown_tensor(x):
    return model(x).sum() + torch.ones(2).add_(hidden())


def hidden(kept=iter([torch.ones(2)])):  # noqa: B008
    return next(kept)


def shown(step):
    with pytest.raises(CaptureError) as caught:
        compile_step(step, budget="100%", time_limit_s=1)(torch.randn(2, 3))
    return caught.value, "".join(traceback.format_exception(caught.value)).splitlines()


@pytest.mark.parametrize("step", [branches, selects, counts, reads_a_file, meets_an_unknown_tensor])
def test_the_message_ends_a_short_traceback_and_is_told_once(step):
    error, lines = shown(step)
    told = str(error).splitlines()
    assert lines[-len(told) + 1 :] == told[1:]
    assert lines[-len(told)].endswith(told[0])
    assert len(lines) <= MOST_LINES
    assert sum(error.what in line for line in lines) == 1
    assert not any(line.startswith(("The above exception", "During handling")) for line in lines)


def test_an_error_of_which_nothing_is_known_keeps_its_cause():
    def fails(x):
        return model(x[:, :2])

    error, lines = shown(fails)
    assert isinstance(error.__cause__, RuntimeError)
    assert any(line.startswith("The above exception was the direct cause") for line in lines)
    assert lines[-1].strip().startswith("next:")

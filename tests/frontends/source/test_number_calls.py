"""`int` and `float` of tensors in the middle of a step give eager's numbers, and no further plan."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neaptide.errors import CaptureError
from neaptide.frontends.source.split_source import StepSource
from support.step_checks import planned


class Meter:
    def __init__(self):
        self.seen = 0


def make():
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    meter = Meter()
    lines = []

    def step(xs):
        total = 0.0
        for x in xs:
            loss = model(x).square().mean()
            loss.backward()
            total += float(loss.detach())
            meter.seen += int((x > 0).sum())
        optimizer.step()
        optimizer.zero_grad()
        lines.append(f"{total:.6f} of {meter.seen} and {int('7')}")
        return total

    return step, meter, lines


def batches(number):
    generator = torch.Generator().manual_seed(number)
    return [torch.randn(4, 3, generator=generator) for _ in range(2)]


def test_counts_and_sums_in_front_of_a_backward_are_those_of_eager():
    (step, meter, lines), (eager, its_meter, its_lines) = make(), make()
    fast = planned(step, batches(0))
    for number in range(4):
        assert fast(batches(number)) == eager(batches(number))
    assert meter.seen == its_meter.seen > 0
    assert type(meter.seen) is int
    assert lines == its_lines
    assert fast.counts.replans == 0


def test_a_number_that_decides_is_refused_as_before():
    def step(x):
        if int(x.sum()) > 3:
            return x * 2
        return x

    with pytest.raises(CaptureError, match="depends on the data"):
        planned(step, torch.ones(3))


def test_names_of_the_users_own_stay_his():
    def int(item):  # noqa: A001
        return item * 2

    def step(x):
        y = x + 1
        return int(y), float("1.5")

    same = StepSource(step).marked(lambda _number: None)
    doubled, number = same(torch.ones(1))
    assert doubled.item() == 4
    assert number == 1.5

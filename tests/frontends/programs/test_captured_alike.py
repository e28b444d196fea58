"""A second capture of a step, for all sizes, is the program that a capture without the first one gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neaptide.errors import CaptureError
from neaptide.frontends import torch_step
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.text.writer import print_graph
from support.step_checks import needs_varying_dims

pytestmark = needs_varying_dims

DYNAMIC = {"x": {0: (2, 64)}}


def make(*, most=0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    log = []

    def step(x, number):
        y = model(x)
        if x.shape[0] > most > 0:
            y = y * 2
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 2:
            log.append(loss.item())
        return loss.detach()

    return step


def texts(captured):
    return [print_graph(program.graph) for program in captured.programs]


def both(step, monkeypatch):
    """Captures with and without an earlier one, and how many traces the first of them took."""
    first = capture_step(step, (torch.zeros(5, 4), 3))
    plain = capture_step(step, (torch.zeros(9, 4), 1), dynamic=DYNAMIC)
    calls = []
    original = torch_step.on_the_way
    monkeypatch.setattr(torch_step, "on_the_way", lambda *args: calls.append(1) or original(*args))
    return capture_step(step, (torch.zeros(9, 4), 1), dynamic=DYNAMIC, like=first), plain, len(calls)


def test_the_cut_is_known_and_what_differs_is_proved_not_to_be_read(monkeypatch):
    alike, plain, cuts = both(make(), monkeypatch)
    assert texts(alike) == texts(plain)
    assert cuts == 0
    assert alike.host is not None
    assert alike.unread.arguments == {1}
    assert alike.agrees((torch.zeros(33, 4), 7), {})


@pytest.mark.slow
def test_where_the_programs_differ_the_step_is_captured_as_if_it_were_the_first_time(monkeypatch):
    alike, plain, cuts = both(make(most=6), monkeypatch)
    assert texts(alike) == texts(plain)
    assert cuts == 1


def test_what_cannot_be_captured_is_refused_as_without_an_earlier_capture():
    def odd(x):
        if x.shape[0] == 9 and bool(x.sum() > 0):
            return x
        return x * 2

    first = capture_step(odd, (torch.zeros(5, 4),))
    with pytest.raises(CaptureError, match="depends on the data"):
        capture_step(odd, (torch.zeros(9, 4),), dynamic=DYNAMIC, like=first)


@pytest.mark.slow
def test_two_captures_at_other_sizes_prove_that_no_size_of_an_example_is_in_the_program():
    step = make()
    first = capture_step(step, (torch.zeros(5, 4), 3))
    assert not first.has_no_example
    assert capture_step(step, (torch.zeros(9, 4), 1), dynamic=DYNAMIC, like=first).has_no_example
    assert not capture_step(step, (torch.zeros(5, 4), 1), dynamic=DYNAMIC, like=first).has_no_example
    assert not capture_step(step, (torch.zeros(9, 4), 1), dynamic=DYNAMIC).has_no_example

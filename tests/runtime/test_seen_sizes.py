"""With `dynamic=True` the dims that vary are found by watching calls; each call keeps eager's bits and the limit."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch.nn import functional

import neaptide
from neaptide.errors import InfeasibleBudget, UsageError
from neaptide.runtime.seen_sizes import SeenSizes

WIDTH = 8


def make(check=lambda x: None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.GELU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch):
        check(batch["x"])
        loss = functional.mse_loss(functional.gelu(model(batch["x"])), batch["y"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, model


def batch(rows, tokens):
    x = torch.randn(rows, tokens, WIDTH, generator=torch.Generator().manual_seed(rows * 100 + tokens))
    return {"x": x, "y": x.flip(0)}


def run(fast, model, shapes, eager, reference):
    for shape in shapes:
        assert torch.equal(fast(batch(*shape)), eager(batch(*shape)))
    for own, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(own, other)


def test_one_replan_is_enough_for_all_lengths_near_those_seen():
    (step, model), (eager, reference) = make(), make()
    fast = neaptide.compile_step(step, budget="95%", dynamic=True)
    run(fast, model, [(3, 9)] * 2, eager, reference)
    assert fast.counts.ranges == ()
    run(fast, model, [(3, 20), (3, 9), (3, 12), (3, 32), (3, 8)], eager, reference)
    assert fast.counts.replans == 1
    assert fast.counts.ranges == ("batch_x_1 in 8..32",)
    assert "planned for batch_x_1 in 8..32" in fast.counts.describe()
    run(fast, model, [(3, 33), (3, 60), (5, 40), (6, 21)], eager, reference)
    assert fast.counts.replans == 3
    assert fast.counts.ranges == ("batch_x_0 in 2..8", "batch_x_1 in 8..64")
    assert fast.counts.eager == 0


def test_a_call_that_differs_otherwise_makes_no_dims():
    (step, model), (eager, reference) = make(), make()
    fast = neaptide.compile_step(step, budget="100%", dynamic=True)
    run(fast, model, [(3, 9)], eager, reference)
    model.eval()
    reference.eval()
    run(fast, model, [(3, 9)], eager, reference)
    assert fast.counts.replans == 1
    assert fast.counts.ranges == ()


def test_where_the_widened_ranges_do_not_fit_those_seen_are_taken(caplog):
    largest = neaptide.profile(make()[0], batch(3, 33), audit=False).predicted_peak_with_workspace_bytes
    (step, model), (eager, reference) = make(), make()
    fast = neaptide.compile_step(step, budget=largest, dynamic=True)
    with caplog.at_level(logging.INFO, "neaptide"):
        run(fast, model, [(3, 20), (3, 33), (3, 25), (3, 33)], eager, reference)
    assert fast.counts.ranges == ("batch_x_1 in 20..33",)
    assert fast.counts.replans == 1
    assert "wider ranges do not fit" in caplog.text


def test_a_refused_call_leaves_the_others_as_they_were():
    most = neaptide.profile(make()[0], batch(3, 20), audit=False).predicted_peak_with_workspace_bytes
    (step, model), (eager, reference) = make(), make()
    fast = neaptide.compile_step(step, budget=most, dynamic=True)
    run(fast, model, [(3, 9)], eager, reference)
    with pytest.raises(InfeasibleBudget):
        fast(batch(3, 900))
    run(fast, model, [(3, 9), (3, 12)], eager, reference)


def test_a_step_that_takes_no_symbols_is_planned_for_each_shape(caplog):
    def check(x):
        if not isinstance(x.shape[1], int):
            raise TypeError("no symbols here")

    (step, model), (eager, reference) = make(check), make()
    fast = neaptide.compile_step(step, budget="100%", dynamic=True)
    with caplog.at_level(logging.WARNING, "neaptide"):
        run(fast, model, [(3, 9), (3, 10), (3, 11), (3, 10)], eager, reference)
    assert fast.counts.replans == 2
    assert fast.counts.ranges == ()
    assert caplog.text.count("each shape is planned by itself") == 1


def watched(*calls):
    seen = SeenSizes(lambda a, b=None: None)
    for args in calls:
        seen.planned(lambda _ranges: None, args, {})
    return {
        path: {axis: (d.__name__, d.min, d.max) for axis, d in dims.items()}
        for path, dims in seen.ranges().items()
    }


def test_ranges_hold_what_was_seen_and_dims_of_one_size_are_one():
    one, other, third = ((torch.zeros(r, t), torch.zeros(t, 4)) for r, t in ((2, 5), (2, 9), (2, 7)))
    assert watched(one) == {}
    assert watched(one, one) == {}
    found = watched(one, other, third)
    assert found == {"a": {1: ("a_1", 4, 16)}, "b": {0: ("a_1", 4, 16)}}
    assert watched(one, (torch.zeros(3, 5), torch.zeros(8, 4))) == {
        "a": {0: ("a_0", 2, 4)},
        "b": {0: ("b_0", 4, 8)},
    }


def test_calls_of_another_structure_are_apart():
    assert watched((torch.zeros(2),), (torch.zeros(3, 4),), (torch.zeros(2), torch.zeros(2))) == {}
    assert watched((torch.zeros(2),), (torch.zeros(3, 4),), (torch.zeros(5),)) == {"a": {0: ("a_0", 2, 8)}}
    assert watched((torch.zeros(0),), (torch.zeros(1),)) == {}


@pytest.mark.parametrize("options", [{"on_mismatch": "eager"}, {"on_mismatch": "error"}])
def test_what_excludes_watching_is_refused(options):
    with pytest.raises(UsageError, match="exclude each other"):
        neaptide.compile_step(make()[0], budget="80%", dynamic=True, **options)


def test_a_profile_needs_the_dims_by_name():
    with pytest.raises(UsageError, match="names no dim"):
        neaptide.profile(make()[0], batch(2, 3), dynamic=True, audit=False)

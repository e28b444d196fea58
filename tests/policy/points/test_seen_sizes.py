"""Dims that vary are found by watching calls, by default; each call keeps eager's bits and the limit."""

from __future__ import annotations

import logging
from functools import cache
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

import neaptide
from neaptide.errors import InfeasibleBudget, UsageError
from neaptide.policy.points import for_all_shapes
from neaptide.policy.points.seen_sizes import SeenSizes
from policy.points.paired_steps import PairedSteps
from support.step_checks import needs_varying_dims
from support.together import together

WIDTH = 8
QUICK = {"time_limit_s": None, "work_limit": 200}


def make(check=lambda x: None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
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


@cache
def largest_peak():
    """Bytes that eager takes at 3 rows of 60, as a profile of that shape predicts them."""
    return neaptide.profile(make()[0], batch(3, 60), audit=False).predicted_peak_with_workspace_bytes


class Seen(PairedSteps):
    """Steps at some rows and tokens."""

    def __init__(self, check=lambda x: None, **options):
        super().__init__(lambda: make(check), **{"budget": "100%", **QUICK, **options})

    def run(self, *shapes):
        self.have_the_same_bits([batch(*shape) for shape in shapes])


@needs_varying_dims
def test_one_replan_is_enough_for_all_lengths():
    pair = Seen(budget="95%")
    pair.run((3, 9), (3, 9))
    assert pair.counts.ranges == ()
    pair.run((3, 20), (3, 132), (3, 2))
    assert pair.counts.replans == 1
    assert pair.counts.ranges == ("batch_x_1 in 2..1048576",)
    pair.run((5, 40), (2, 300))
    assert pair.counts.replans == 2
    assert pair.counts.ranges == ("batch_x_0 in 2..1048576", "batch_x_1 in 2..1048576")
    assert pair.counts.eager == 0


@needs_varying_dims
def test_each_shape_gets_its_share_of_the_budget_without_another_order_where_that_saves_too_little(
    monkeypatch,
):
    monkeypatch.setattr(for_all_shapes, "orders_for_range", None)
    pair = Seen(budget="95%", time_limit_s=5.0, work_limit=None)  # only time is too dear to search
    pair.run((3, 9), (3, 20), (3, 60))
    assert pair.counts.replans == 1
    assert pair.counts.ranges
    assert pair.fast.eviction.repeated
    assert 0 < pair.fast.eviction.peak_bytes <= 0.95 * largest_peak()


@pytest.mark.slow
def test_where_no_program_for_all_shapes_keeps_its_share_each_is_planned_by_itself(caplog):
    pair = Seen(budget="80%")
    with caplog.at_level(logging.WARNING, "neaptide"):
        pair.run((3, 40), (3, 50), (3, 45))
    assert pair.counts.ranges == ()
    assert caplog.text.count("each shape is planned by itself") == 1


@pytest.mark.slow
@needs_varying_dims
def test_a_shape_that_does_not_stay_within_its_bytes_is_planned_alone():
    pair = Seen(budget=largest_peak())
    pair.run((3, 20))
    with pytest.raises(InfeasibleBudget):  # the others are as they were
        pair.fast(batch(3, 900))
    pair.run((3, 20), (3, 33), (3, 60), (3, 25))
    with pytest.raises(InfeasibleBudget):
        pair.fast(batch(3, 900))
    pair.run((3, 21))
    assert pair.counts.eager == 0


@together("options", [{"dynamic": False}, {"on_mismatch": "eager"}, {"arena": True}], quick=(0, 2))
def test_dims_stay_as_they_are_where_they_are_told_to_or_something_excludes_it(options):
    pair = Seen(**options)
    pair.run((3, 9), (3, 20))
    assert pair.counts.ranges == ()
    assert pair.counts.replans + pair.counts.eager == 1


def test_a_call_that_differs_otherwise_makes_no_dims():
    pair = Seen()
    pair.run((3, 9))
    pair.model.eval()
    pair.reference.eval()
    pair.run((3, 9))
    assert pair.counts.replans == 1
    assert pair.counts.ranges == ()


def test_a_step_that_takes_no_symbols_is_planned_for_each_shape(caplog):
    def check(x):
        if not isinstance(x.shape[1], int):
            raise TypeError("no symbols here")

    pair = Seen(check)
    with caplog.at_level(logging.WARNING, "neaptide"):
        pair.run((3, 9), (3, 10), (3, 11), (3, 10))
    assert pair.counts.replans == 2
    assert pair.counts.ranges == ()
    assert caplog.text.count("each shape is planned by itself") == 1


@needs_varying_dims
def test_a_size_that_the_code_fixes_is_named_once_with_its_line(caplog):
    pair = Seen(by_position)
    with caplog.at_level(logging.WARNING, "neaptide"):
        pair.run((3, 9), (4, 10), (5, 10), (6, 10))
    assert pair.counts.ranges == ("batch_x_0 in 2..1048576",)
    assert pair.counts.replans == 1
    (told,) = [record.getMessage() for record in caplog.records if "each shape" in record.getMessage()]
    assert "dim 1 of batch.x" in told
    assert "for position in range(x.shape[1])" in told
    assert "dynamic=False" in told
    assert "\n" not in told
    assert len(told) < 600


def by_position(x):
    for position in range(x.shape[1]):
        x[:, position] + 1


@pytest.mark.slow
@needs_varying_dims
def test_a_single_row_is_planned_once_for_all_lengths():
    pair = Seen()
    pair.run((4, 9), (4, 12), (1, 30), (1, 12), (1, 7), (4, 11), (1, 200))
    assert pair.counts.replans == 2
    assert pair.counts.eager == 0


def dims_of(*calls, step=lambda a, b=None: None):
    seen, planned = SeenSizes(step), SimpleNamespace(captured=SimpleNamespace(programs=()))
    for args in calls:
        seen.planned(lambda _dims: planned, args, {})
    found = seen.dims()
    if found is None:
        return {}
    return {path: {axis: dim.__name__ for axis, dim in dims.items()} for path, dims in found.dynamic.items()}


def test_dims_of_one_size_in_every_call_are_one():
    one, other, third = ((torch.zeros(r, t), torch.zeros(t, 4)) for r, t in ((2, 5), (2, 9), (2, 7)))
    assert dims_of(one) == {}
    assert dims_of(one, one) == {}
    assert dims_of(one, other, third) == {"a": {1: "a_1"}, "b": {0: "a_1"}}
    assert dims_of(one, (torch.zeros(3, 5), torch.zeros(8, 4))) == {"a": {0: "a_0"}, "b": {0: "b_0"}}


def test_a_size_of_one_is_no_dim_and_calls_of_another_structure_are_apart():
    first, single, second = torch.zeros(4, 5), torch.zeros(1, 6), torch.zeros(4, 7)
    assert dims_of((first,), (single,)) == {"a": {1: "a_1"}}
    assert dims_of((first,), (single,), (second,)) == {"a": {0: "a_0", 1: "a_1"}}
    assert dims_of((torch.zeros(2),), (torch.zeros(3, 4),), (torch.zeros(2), torch.zeros(2))) == {}
    assert dims_of((torch.zeros(2),), (torch.zeros(3, 4),), (torch.zeros(5),)) == {"a": {0: "a_0"}}
    assert dims_of((torch.zeros(0),), (torch.zeros(1),)) == {}


@needs_varying_dims
def test_what_names_no_dim_or_excludes_watching_is_refused():
    for dynamic in ("all", 3, ["batch"]):
        with pytest.raises(UsageError, match="names no dim"):
            neaptide.compile_step(make()[0], budget="80%", dynamic=dynamic)
    for options in ({"on_mismatch": "eager"}, {"on_mismatch": "error"}, {"arena": True}):
        with pytest.raises(UsageError, match="exclude each other"):
            neaptide.compile_step(make()[0], budget="80%", dynamic=True, **options)
    with pytest.raises(UsageError, match="names no dim"):
        neaptide.profile(make()[0], batch(2, 3), dynamic=True, audit=False)

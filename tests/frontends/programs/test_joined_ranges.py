"""A range goes on past a size that torch, a kernel or the step asks for, exactly where the program is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

import neaptide
from frontends.steps import update
from neaptide.frontends.programs.step_programs import Capture
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.edits.with_sizes import with_sizes
from support.step_checks import assert_is_the_capture_of, needs_varying_dims, peak

pytestmark = needs_varying_dims


@pytest.fixture(autouse=True)
def _nothing_remembered():
    """What a fake tensor was made like is remembered for the whole process, strides of single elements included."""
    FakeTensorMode.cache_clear()


def training(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return lambda x: update(model(x).square().mean(), optimizer)


def dims_of(captured):
    return [str(dim) for dim in captured.steady.graph.dims]


def notes_of(captured):
    return [note for note in captured.steady.rewrites if "holds" in note]


def test_a_size_of_one_belongs_to_the_range():
    step = training(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
    captured = capture_step(step, (torch.zeros(3, 4),), dynamic={"x": {0: (1, 9)}})
    assert dims_of(captured) == ["x_0 in 1..9"]
    assert notes_of(captured) == []
    for size in (1, 9):
        assert_is_the_capture_of(step, captured, {"x_0": size}, (torch.zeros(size, 4),))


@pytest.mark.parametrize("example", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_convolution_holds_on_both_sides_of_sixteen_images(example):
    step = training(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2)))
    captured = capture_step(step, (torch.zeros(example, 3, 8, 8),), dynamic={"x": {0: (1, 64)}})
    assert dims_of(captured) == ["x_0 in 1..64"]
    assert notes_of(captured) == []
    for size in (1, 15, 17):
        assert_is_the_capture_of(step, captured, {"x_0": size}, (torch.zeros(size, 3, 8, 8),))


def test_two_dims_hold_down_to_their_common_corner():
    step = training(nn.Linear(4, 4))
    captured = capture_step(step, (torch.zeros(3, 5, 4),), dynamic={"x": {0: (1, 9), 1: (1, 7)}})
    assert dims_of(captured) == ["x_0 in 1..9", "x_1 in 1..7"]
    for count, length in ((1, 1), (9, 7)):
        binding = {"x_0": count, "x_1": length}
        assert_is_the_capture_of(step, captured, binding, (torch.zeros(count, length, 4),))


def test_a_range_that_is_held_as_asked_costs_no_further_trace(monkeypatch):
    traced, programs = [], Capture.programs
    monkeypatch.setattr(Capture, "programs", lambda capture: traced.append(1) or programs(capture))
    captured = capture_step(lambda x: x.sum(), (torch.zeros(3, 4),), dynamic={"x": {0: (2, 9)}})
    assert dims_of(captured) == ["x_0 in 2..9"]
    assert len(traced) == 1


def test_a_branch_that_does_not_matter_ends_no_range():
    def step(x):
        if x.shape[0] > 6:
            return x.sum(0).sum()
        total = x.sum(0)
        return total.sum()

    for example in (3, 9):
        captured = capture_step(step, (torch.zeros(example, 4),), dynamic={"x": {0: (1, 64)}})
        assert dims_of(captured) == ["x_0 in 1..64"]
        assert notes_of(captured) == []


def test_a_branch_that_matters_ends_it_and_the_operation_is_named():
    def step(x):
        if x.shape[0] > 6:
            return (x * 2).sum()
        return x.sum()

    captured = capture_step(step, (torch.zeros(3, 4),), dynamic={"x": {0: (1, 64)}})
    assert dims_of(captured) == ["x_0 in 1..6"]
    (note,) = notes_of(captured)
    assert "if x.shape[0] > 6" in note
    assert "at x_0 = 7 it is another program: aten.mul.Tensor stands in place of aten.sum.default" in note
    assert_is_the_capture_of(step, captured, {"x_0": 1}, (torch.zeros(1, 4),))


def rows_without_their_first(x):
    return x[:, 1:].contiguous().view(-1).sum()


def heads_in_front_of_the_length(x):
    return x.view(2, -1, 2, 2).transpose(1, 2).contiguous().view(-1).sum()


@pytest.mark.parametrize(("step", "axis"), [(rows_without_their_first, 0), (heads_in_front_of_the_length, 1)])
def test_a_copy_that_a_size_of_one_does_without_keeps_two_programs(step, axis):
    captured = capture_step(step, (torch.zeros(2, 3, 4),), dynamic={"x": {axis: (1, 64)}})
    assert dims_of(captured) == [f"x_{axis} in 2..64"]
    assert "in place of aten.clone.default" in notes_of(captured)[0]


def test_a_size_that_the_step_refuses_is_outside_with_its_reason():
    step = training(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    captured = capture_step(step, (torch.zeros(3, 4),), dynamic={"x": {0: (1, 9)}})
    assert dims_of(captured) == ["x_0 in 2..9"]
    assert "more than 1 value per channel" in notes_of(captured)[0]


def tied(past_five):
    def step(x, y):
        if x.shape[0] == 1 and y.shape[0] > 5:
            return past_five(x) + y.sum()
        return x.sum() + y.sum()

    args = torch.zeros(3, 4), torch.zeros(3, 4)
    return capture_step(step, args, dynamic={"x": {0: (1, 9)}, "y": {0: (2, 9)}})


def test_a_narrower_range_of_another_dim_past_the_bound_is_widened_too():
    assert dims_of(tied(torch.Tensor.sum)) == ["x_0 in 1..9", "y_0 in 2..9"]


def test_where_it_cannot_be_the_bound_stays():
    captured = tied(lambda x: x.exp().sum())
    assert dims_of(captured) == ["x_0 in 2..9", "y_0 in 2..9"]
    assert "y_0 in 2..5" in notes_of(captured)[0]


class Token(nn.Module):
    """A token in front of the batch, which for one row is expanded to its own size."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, 4))
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1))


def test_a_sum_over_copies_that_one_row_does_without_keeps_two_programs():
    captured = capture_step(training(Token()), (torch.zeros(3, 5, 4),), dynamic={"x": {0: (1, 9)}})
    assert dims_of(captured) == ["x_0 in 2..9"]
    assert "in place of aten.sum.dim_IntList" in notes_of(captured)[0]


def test_a_view_that_gives_back_what_it_views_is_no_other_program():
    token = torch.randn(1, 1, 4)

    def step(x):
        return torch.cat((token.expand(x.shape[0], -1, -1), x), dim=1).sum()

    captured = capture_step(step, (torch.zeros(3, 5, 4),), dynamic={"x": {0: (1, 9)}})
    assert dims_of(captured) == ["x_0 in 1..9"]
    static = capture_step(step, (torch.zeros(1, 5, 4),)).steady.graph
    found = with_sizes(captured.steady.graph, {"x_0": 1})
    assert [s.nbytes for s in found.storages] == [s.nbytes for s in static.storages]
    assert peak(found) == peak(static)
    more = [node.op for node in found.nodes]
    for node in static.nodes:
        more.remove(node.op)
    assert more == ["aten.expand.default"]


@pytest.mark.parametrize(
    ("make", "replans"),
    [
        pytest.param(lambda: nn.Linear(4, 4), 0, marks=pytest.mark.slow),
        pytest.param(Token, 1, id="of-its-own"),
    ],
)
def test_one_row_has_the_bits_of_eager_with_a_program_of_its_own_or_without(make, replans):
    def run(fast_of):
        torch.manual_seed(0)
        model = make()
        fast = fast_of(training(model))
        losses = [fast(torch.randn(size, 5, 4)) for size in (3, 1, 9)]
        return fast, [*losses, *model.parameters()]

    fast, found = run(
        lambda step: neaptide.compile_step(
            step, budget="100%", dynamic={"x": {0: (1, 9)}}, time_limit_s=None, work_limit=100
        )
    )
    _, expected = run(lambda step: step)
    assert fast.counts.replans == replans
    assert all(map(torch.equal, found, expected))


def test_strides_differ_for_axes_of_one_element_only():
    def step(x):
        heads = x.view(2, -1, 2, 4).transpose(1, 2)
        return functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).square().sum()

    captured = capture_step(step, (torch.zeros(2, 3, 8),), dynamic={"x": {1: (1, 9)}})
    assert dims_of(captured) == ["x_1 in 1..9"]
    found = with_sizes(captured.steady.graph, {"x_1": 1})
    expected = capture_step(step, (torch.zeros(2, 1, 8),)).steady.graph
    for value, other in zip(found.values, expected.values, strict=True):
        assert replace(value, strides=()) == replace(other, strides=())
        for size, stride, its in zip(value.shape, value.strides, other.strides, strict=True):
            assert stride == its or size.constant_value() == 1
    assert peak(found) == peak(expected)


def test_dims_that_are_one_size_go_past_the_bound_together():
    def step(x, y):
        return (x * y).sum()

    args = torch.zeros(3, 4), torch.zeros(3, 4)
    captured = capture_step(step, args, dynamic={"x": {0: (1, 9)}, "y": {0: (1, 9)}})
    (dim,) = captured.steady.graph.dims
    assert (dim.low, dim.high) == (1, 9)
    captured = capture_step(step, args, dynamic={"x": {0: (1, 9)}, "y": {0: (2, 9)}})
    (dim,) = captured.steady.graph.dims
    assert (dim.low, dim.high) == (2, 9)

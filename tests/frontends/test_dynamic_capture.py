"""A capture with dims that vary is, at every shape in its range, the capture of that shape."""

from __future__ import annotations

import math
import random

import pytest
import torch
from torch import nn
from torch.nn import functional

from frontends.steps import update
from neaptide.errors import CaptureError, UsageError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.zoo.spec import factory
from support.step_checks import assert_is_the_capture_of, needs_varying_dims, peak
from support.together import together

pytestmark = needs_varying_dims

SHAPES = 4
WHOLE = {"batch": {0: (1, 64), 1: (2, 64)}}
BATCH = {"batch": {0: (1, 64)}}


def resized(batch, sizes):
    return {
        key: torch.zeros([sizes.get(axis, n) for axis, n in enumerate(t.shape)], dtype=t.dtype)
        for key, t in batch.items()
    }


def check_model(spec, dynamic, count, **options):
    step, batch = factory(spec, **options)()
    captured = capture_step(step, (batch,), dynamic=dynamic)
    draw = random.Random(spec)
    dims = captured.steady.graph.dims
    assert len(dims) == len(dynamic["batch"])
    for _ in range(count):
        binding = {dim.name: draw.randint(dim.low, dim.high) for dim in dims}
        sizes = {int(name.rpartition("_")[2]): size for name, size in binding.items()}
        assert_is_the_capture_of(step, captured, binding, (resized(batch, sizes),))


def test_a_perceptron():
    check_model("mlp@tiny", BATCH, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "dynamic", "shapes", "options"),
    [
        ("gpt2@tiny", WHOLE, SHAPES, {"seq": 64}),
        ("bert@tiny", WHOLE, SHAPES, {"seq": 64}),
        ("gpt2@tiny,bf16", WHOLE, 1, {"seq": 64, "dropout": 0.1}),
        ("llama@tiny", WHOLE, SHAPES, {}),
        *((f"{name}@tiny", BATCH, SHAPES, {}) for name in ("vit", "unet", "resnet50")),
    ],
)
def test_other_models(spec, dynamic, shapes, options):
    check_model(spec, dynamic, shapes, **options)


# -- what a step does with sizes -----------------------------------------------------------------------------------


class Attention(nn.Module):
    """Sizes in shapes, in factories, in means and in plain arithmetic."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.places = nn.Embedding(64, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count, length, width = x.shape
        x = x + self.places(torch.arange(length))
        q, k, v = self.qkv(x).view(count, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        x = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x.transpose(1, 2).reshape(count * length, width)
        return (x / (count * length)).square().sum() + x.mean() * max(length, 4)


def training(model, loss_of=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        return update(model(x) if loss_of is None else loss_of(model(x), x), optimizer)

    return step


def test_the_larger_and_the_smaller_of_two_sizes_are_what_they_are_at_each_shape():
    def step(x):
        return x.new_zeros(max(x.shape[0], 4)).sum() + x.new_zeros(min(x.shape[0], 6)).sum() + x.sum()

    captured = capture_step(step, (torch.zeros(5, 3),), dynamic={"x": {0: (2, 9)}})
    for size in (2, 5, 9):
        assert_is_the_capture_of(step, captured, {"x_0": size}, (torch.zeros(size, 3),))


def test_sizes_as_arguments_stay_sizes():
    step = training(Attention())
    captured = capture_step(step, (torch.zeros(3, 5, 8),), dynamic={"x": {0: (2, 9), 1: (2, 33)}})
    graph = captured.steady.graph
    assert [str(dim) for dim in graph.dims] == ["x_0 in 2..9", "x_1 in 2..33"]
    (arange,) = (node for node in graph.nodes if node.op == "aten.arange.default")
    assert str(arange.args[0]) == "x_1"
    for n, t in ((2, 2), (9, 33)):
        static = capture_step(step, (torch.zeros(n, t, 8),)).steady.graph
        found = with_sizes(graph, {"x_0": n, "x_1": t})
        held, expected = ([s.nbytes.evaluate() for s in g.storages] for g in (found, static))
        assert sorted(held) == sorted(expected)
        assert peak(found) == peak(static)


def test_products_and_dropout_are_the_operations_of_eager():
    linear, drop = nn.Linear(8, 8), nn.Dropout(0.0)

    def loss_of(y, x):
        heads = drop(y).view(*x.shape[:2], 2, 4).transpose(1, 2)
        scores = (heads @ heads.transpose(-1, -2)).softmax(-1)
        return (functional.dropout(scores, 0.5) @ heads).sum()

    step = training(linear, loss_of)
    captured = capture_step(step, (torch.zeros(3, 5, 8),), dynamic={"x": {0: (2, 9), 1: (2, 33)}})
    for count, length in ((9, 17),):
        assert_is_the_capture_of(
            step, captured, {"x_0": count, "x_1": length}, (torch.zeros(count, length, 8),)
        )


def test_a_float_of_a_size_is_computed_by_the_program():
    step = training(nn.Linear(4, 4), lambda y, x: y.sum() / math.sqrt(x.shape[0]))
    captured = capture_step(step, (torch.zeros(3, 4),), dynamic={"x": {0: (2, 9)}})
    ops = [(node.op, tuple(map(str, node.args))) for node in captured.steady.graph.nodes]
    assert ("host.math_sqrt", ("x_0",)) in ops


def test_a_size_can_be_returned():
    def step(x):
        return x.sum(), x.shape[0]

    graph = capture_step(step, (torch.zeros(3, 4),), dynamic={"x": {0: (2, 9)}}).steady.graph
    assert [str(a) for n in graph.nodes if n.op == "host.builtin_int" for a in n.args] == ["x_0"]


def test_without_dims_nothing_changes():
    step = training(Attention())
    graph = capture_step(step, (torch.zeros(3, 5, 8),)).steady.graph
    assert graph.dims == ()
    assert all(size.is_constant for value in graph.values for size in value.shape)


# -- for which sizes a program holds -------------------------------------------------------------------------------


def noted(step, args, dynamic):
    program = capture_step(step, args, dynamic=dynamic).steady
    return program, [note for note in program.rewrites if "holds" in note]


def test_a_branch_on_a_size_narrows_the_range_and_names_the_line():
    def step(x):
        if x.shape[0] > 6:
            return x.sum() * 2
        return x.sum()

    program, notes = noted(step, (torch.zeros(3, 4),), {"x": {0: (2, 64)}})
    assert [str(dim) for dim in program.graph.dims] == ["x_0 in 2..6"]
    assert len(notes) == 1
    assert "x_0 in 2..6" in notes[0]
    assert "if x.shape[0] > 6" in notes[0]
    program, _ = noted(step, (torch.zeros(9, 4),), {"x": {0: (2, 64)}})
    assert [str(dim) for dim in program.graph.dims] == ["x_0 in 7..64"]


def test_a_loop_over_a_size_fixes_it_and_names_the_line():
    def step(x):
        total = x[0]
        for place in range(1, x.shape[0]):
            total = total + x[place]
        return total

    program, notes = noted(step, (torch.zeros(3, 4),), {"x": {0: (2, 64)}})
    assert program.graph.dims == ()
    assert any("x_0 = 3 only" in note and "range(1, x.shape[0])" in note for note in notes)


def test_sizes_that_must_be_equal_become_one():
    def step(x, y):
        return (x * y).sum()

    program, notes = noted(
        step, (torch.zeros(3, 4), torch.zeros(3, 4)), {"x": {0: (2, 64)}, "y": {0: (3, 50)}}
    )
    (dim,) = program.graph.dims
    assert (dim.low, dim.high) == (3, 50)
    assert any("==" in note for note in notes)


def test_a_size_that_must_be_divisible_gives_a_relation():
    def step(x):
        return x.view(x.shape[0] // 4, 4, 2).sum()

    program, _ = noted(step, (torch.zeros(8, 2),), {"x": {0: (4, 64)}})
    graph = program.graph
    assert graph.relations
    for size in range(4, 64):
        holds = all(
            r.left.evaluate({"x_0": size}) == r.right.evaluate({"x_0": size}) for r in graph.relations
        )
        assert holds == (size % 4 == 0)


def test_one_dim_of_torch_export_is_one_size():
    length = torch.export.Dim("length", min=2, max=30)
    step = training(Attention())

    def both(batch):
        return step(batch["x"] * batch["mask"].unsqueeze(-1))

    batch = {"x": torch.zeros(3, 5, 8), "mask": torch.zeros(3, 5)}
    dynamic = {"batch.x": {1: length}, "batch.mask": {1: length}}
    graph = capture_step(both, (batch,), dynamic=dynamic).steady.graph
    assert [str(dim) for dim in graph.dims] == ["length in 2..30"]


def test_an_example_of_one_does_not_fix_a_size():
    step = training(nn.Linear(4, 4), lambda y, _: y.sum())
    graph = capture_step(step, (torch.zeros(1, 4),), dynamic={"x": {0: (1, 9)}}).steady.graph
    assert [(dim.name, dim.high) for dim in graph.dims] == [("x_0", 9)]


@together(
    ("dynamic", "told"),
    [
        ({"y": {0: (2, 9)}}, "no argument"),
        ({"x": {7: (2, 9)}}, "no tensor there has"),
        ({"x": {0: (4, 9)}}, "outside of its range"),
        ({"x": {0: (9, 2)}}, "cannot be read"),
        ({"x": (2, 9)}, "cannot be read"),
        ({"x": {0: (1, 9)}, "x.a": {0: (1, 9)}}, "no argument"),
    ],
)
def test_what_does_not_fit_the_arguments_is_refused(dynamic, told):
    with pytest.raises(UsageError, match=told):
        capture_step(training(nn.Linear(4, 4)), (torch.zeros(3, 4),), dynamic=dynamic)


def test_a_tensor_with_gaps_cannot_vary():
    with pytest.raises(CaptureError, match="strides do not follow"):
        capture_step(lambda x: x.sum(), (torch.zeros(3, 8)[:, ::2],), dynamic={"x": {0: (2, 9)}})


def test_a_transposed_batch_keeps_its_order():
    def step(x):
        return (x * 2).sum()

    graph = capture_step(step, (torch.zeros(4, 3).t(),), dynamic={"x": {0: (2, 9)}}).steady.graph
    (batch,) = (graph.values[v] for v in graph.inputs)
    assert [str(n) for n in batch.strides] == ["1", "x_0"]

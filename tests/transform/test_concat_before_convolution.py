"""Convolutions of joined tensors: the same numbers up to rounding without the join, in no more bytes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neaptide.frontends.torch_step import capture_step
from neaptide.ops import registry
from neaptide.ops.aten.dialect import JOIN
from neaptide.transform.rewrite import apply_rule
from neaptide.transform.rules import RULES
from support.steps import trained
from support.together import together
from support.torch_programs import Recorder
from transform.fission_play import assert_same_numbers, peak, refused

RULE = RULES["concat_before_convolution"]


class Skips(nn.Module):
    """Joins what two to four convolutions make, of other numbers of channels, and convolves the join."""

    def __init__(self, widths=(3, 2), bias=True, **options):
        super().__init__()
        self.pieces = nn.ModuleList(nn.Conv2d(2, width, 3, padding=1) for width in widths)
        self.joined = nn.Conv2d(sum(widths), 4, 3, bias=bias, **options)

    def forward(self, x):
        return self.joined(torch.cat([torch.relu(piece(x)) for piece in self.pieces], 1))


class Twice(Skips):
    """Two convolutions read one join, so that its gradient is a sum."""

    def forward(self, x):
        joined = torch.cat([piece(x) for piece in self.pieces], 1)
        return self.joined(joined) + self.joined(joined * 2)


class Frozen(Skips):
    """Nothing in front of the join learns: its gradient is not made."""

    def __init__(self):
        super().__init__()
        self.pieces.requires_grad_(False)


class OfWeightAlone(Skips):
    """The bias does not learn."""

    def __init__(self):
        super().__init__()
        self.joined.bias.requires_grad_(False)


def captured(model, channels_last=False):
    torch.manual_seed(0)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = model.to(memory_format=layout)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    step = trained(optimizer, lambda x: model(x).square().mean())
    return capture_step(step, (torch.randn(2, 2, 9, 8).contiguous(memory_format=layout),)).steady.graph


def joins(graph):
    """Joins of activations: those of gradients of weights are small."""
    return [
        node for node in graph.nodes if node.op == JOIN and "weight" not in graph.values[node.outputs[0]].name
    ]


MODELS = {
    "two": Skips,
    "four": lambda: Skips((1, 3, 2, 1)),
    "no bias": lambda: Skips(bias=False),
    "strides": lambda: Skips(stride=2, padding=1, dilation=2),
    "frozen": Frozen,
    "weight alone": OfWeightAlone,
}


@together("name", MODELS)
def test_a_step_computes_the_same_without_the_join(name):
    graph = captured(MODELS[name]())
    made = apply_rule(graph, registry(), RULE)
    assert len(made.rewrites) == 1
    after = made.edited.graph
    assert len(joins(graph)) == 1
    assert [len(node.inputs) for node in after.nodes if node.op == JOIN] == [
        len(node.inputs) for node in graph.nodes if node.op == JOIN
    ]  # that of the gradients of the weight
    assert not [v for v in after.values if v.name == graph.values[joins(graph)[0].outputs[0]].name]
    assert_same_numbers(after, graph)


def test_a_skip_is_no_longer_there_twice():
    class Long(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.middle = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.last = nn.Conv2d(16, 2, 3, padding=1)

        def forward(self, x):
            kept = torch.relu(self.first(x))
            return self.last(torch.cat([kept, torch.relu(self.middle(kept))], 1))

    graph = captured(Long())
    assert peak(apply_rule(graph, registry(), RULE).edited.graph) < 0.9 * peak(graph)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Twice, "aten.mul.Tensor uses it"),
        (lambda: Skips((2, 2), groups=2), "aten.convolution.default needs all of its axis at once"),
        (lambda: Skips((3,)), "it joins one tensor"),
    ],
)
def test_refusals_have_reasons(model, reason):
    graph = captured(model())
    assert reason in refused(RULE, graph, joins(graph)[0].id)


def test_other_layouts_are_left_alone():
    graph = captured(Skips(), channels_last=True)
    assert not list(RULE.find(graph, registry()))


def forward(write=False, output=False):
    recorder = Recorder()
    a, b = (recorder.input(torch.randn(1, channels, 4, 4), name) for name, channels in (("a", 2), ("b", 1)))
    weight = recorder.input(torch.randn(2, 3, 3, 3), "weight")
    shifted = recorder.call("aten.exp.default", a)
    joined = recorder.call("aten.cat.default", [shifted, b], 1)
    if write:
        recorder.call("aten.relu_.default", shifted)
    arguments = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    result = recorder.call("aten.convolution.default", joined, weight, None, *arguments)
    return recorder, recorder.finish([result, joined] if output else [result])


def test_the_first_piece_takes_the_others():
    recorder, graph = forward()
    made = apply_rule(graph, registry(), RULE).edited.graph
    assert_same_numbers(made, graph, recorder.fresh_inputs())


def test_what_is_written_into_or_handed_back_stays():
    for options, reason in (({"write": True}, "written into after"), ({"output": True}, "handed back")):
        _, graph = forward(**options)
        assert reason in refused(RULE, graph, joins(graph)[0].id)

"""RReLU makes its noise in one operation, which the planner may recompute."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn

from neaptide.analysis.replay import repeat_rule
from neaptide.frontends.torch_step import capture_step
from neaptide.ops import registry
from programs.program import descending
from support.step_checks import assert_same_bits


def factory(shape=(6, 8), *, layout=torch.contiguous_format, inplace=False):
    def made():
        layer = nn.Linear(8, 8) if len(shape) == 2 else nn.Conv2d(shape[1], shape[1], 1)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

        def loss_of(x):
            return torch.nn.functional.rrelu(layer(x), training=True, inplace=inplace).square().mean()

        return descending(optimizer, loss_of), torch.randn(shape).to(memory_format=layout)

    return made


def operations(made):
    step, batch = made()
    graph = capture_step(step, (batch,)).steady.graph
    return graph, Counter(node.op for node in graph.nodes)


def test_it_can_be_recomputed_and_has_the_bits_of_eager():
    graph, found = operations(factory())
    assert found["aten.rrelu_with_noise_functional.default"] == 1
    assert not found["aten.empty_like.default"]
    (node,) = (n for n in graph.nodes if "rrelu_with_noise_functional" in n.op)
    assert repeat_rule(graph, node, registry()).random_stream == "cpu"
    assert_same_bits(factory())


@pytest.mark.parametrize(
    "made",
    [factory((2, 4, 3, 3), layout=torch.channels_last), factory(inplace=True)],
    ids=["channels last", "in place"],
)
def test_other_forms_stay_as_they_are(made):
    _, found = operations(made)
    assert not found["aten.rrelu_with_noise_functional.default"]
    assert_same_bits(made)

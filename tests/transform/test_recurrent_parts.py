"""Recurrent layers in parts: what a library keeps for the backward stays in its part, and its bytes are those of a part."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from neaptide.analysis.axes.follow import Why, follow
from neaptide.cost.cache import OpCostCache
from neaptide.cost.cards.allocator_events import record
from neaptide.cost.measured import MeasuredCost
from neaptide.cost.model import KnownCost
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.schedule import Schedule
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies.program_order import baseline
from neaptide.runtime.calls.executor import Executable
from neaptide.runtime.steps.capturing import capture
from neaptide.transform.fission.candidates import candidates
from neaptide.transform.rewrite import apply_rewrite
from neaptide.transform.rules import RULES
from neaptide.transform.rules.fission import fission
from support.steps import trained
from transform.fission_play import assert_close, random_inputs

BATCH = 6

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this PyTorch was built without oneDNN"
)


@pytest.fixture(scope="module")
def graph():
    """A step of two recurrent layers on sequences of twelve."""
    torch.manual_seed(0)
    layers = nn.LSTM(3, 16, 2)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)

    step = trained(optimizer, lambda x: layers(x)[0].square().sum())
    return capture(step, (torch.randn(12, BATCH, 3),)).steady.graph


def of_step(graph):
    return next(c for c in candidates(graph, registry()) if c.kind == "step" and c.length == BATCH)


def layers_of(graph, members=None):
    numbers = range(len(graph.nodes)) if members is None else members
    return [n for n in numbers if "rnn_layer" in graph.nodes[n].op]


def in_parts(graph, parts):
    found = of_step(graph)
    wanted = fission(graph, found.members, length=BATCH, parts=parts, inputs=found.seeds)
    return apply_rewrite(graph, registry(), wanted, RULES).graph


def run(graph, inputs):
    copies = copied(inputs)
    program = lower(graph, Schedule.program_order(graph), registry())
    outputs = Executable(program, name="recurrent").run(list(copies))
    return [*outputs, *(item for item in copies if isinstance(item, torch.Tensor))]


def copied(inputs):
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]


def test_forward_and_backward_of_a_layer_are_of_one_part(graph):
    found = of_step(graph)
    assert layers_of(graph, found.members) == layers_of(graph)
    assert len(layers_of(graph)) == 4
    kept = {graph.values[graph.nodes[n].outputs[3]].storage for n in layers_of(graph)[:2]}
    assert kept <= found.in_parts
    inputs = random_inputs(graph)
    expected = run(graph, inputs)
    for parts in (2, 4):  # of 2, 2 and 2; and of 2, 2, 1 and 1
        assert_close(run(in_parts(graph, parts), inputs), expected)


def test_what_is_kept_for_the_backward_crosses_no_border(graph):
    found = of_step(graph)
    forward, backward = layers_of(graph)[1:3]  # of the second layer
    wanted = fission(graph, [forward], length=BATCH, parts=2, inputs=_handed(graph, [forward]))
    with pytest.raises(RewriteError, match="means something within its part only, and leaves the region"):
        apply_rewrite(graph, registry(), wanted, RULES)
    wanted = fission(graph, [backward], length=BATCH, parts=2, inputs=_handed(graph, [backward]))
    with pytest.raises(RewriteError, match="means something within a part only"):
        apply_rewrite(graph, registry(), wanted, RULES)
    assert found.members.issuperset([forward, backward])


def _handed(graph, nodes):
    """What nodes are handed, cut along the batch."""
    carried = follow(graph, registry(), of_step(graph).seeds, BATCH)
    return {v: carried.axes[v] for n in nodes for v in graph.nodes[n].inputs if v in carried.axes}


def test_only_the_backward_of_the_same_part_can_read_it():
    b = GraphBuilder("kept", registry())
    x = b.input("x", (4, BATCH, 3))
    weights = [b.input(n, s) for n, s in (("wi", (20, 3)), ("wh", (20, 5)), ("bi", (20,)), ("bh", (20,)))]
    h, c = b.input("h", (BATCH, 5)), b.input("c", (BATCH, 5))
    y, _, _, kept = b.node(
        "aten.mkldnn_rnn_layer.default", x, *weights, h, c, False, [], 2, 5, 1, True, False, False, True,
        outputs=["y: f32[4, 6, 5]", "hy: f32[6, 5]", "cy: f32[6, 5]", "kept: u8[0]"],
    )  # fmt: skip
    (copy,) = b.node("aten.clone.default", kept, outputs=["copy: u8[0]"])
    (packed, *_, other) = b.node(
        "aten.mkldnn_rnn_layer.default", x, *weights, h, c, False, [6, 6, 3, 1], 2, 5, 1, True, False, False, True,
        outputs=["packed: f32[4, 6, 5]", "hp: f32[6, 5]", "cp: f32[6, 5]", "other: u8[0]"],
    )  # fmt: skip
    b.output(y, copy, packed, other)
    graph = b.finish()
    found = follow(graph, registry(), {x: Along(1)}, BATCH)
    assert found.private == {kept}
    assert found.axes[y] == Along(1)
    assert [(barrier.node, barrier.why) for barrier in found.barriers] == [(1, Why.WHOLE), (2, Why.WHOLE)]
    assert copy in found.behind


@pytest.fixture
def cost(tmp_path):
    return MeasuredCost(registry(), OpCostCache(tmp_path / "costs"))


def test_the_bytes_of_a_part_are_those_that_the_library_takes(graph, cost):
    peaks = []
    for made in (graph, in_parts(graph, 4)):
        cost.prepare(made)
        problem = Pricing(cost, registry()).problem(made)
        peaks.append(baseline(problem).peak_with_workspace_bytes)
        assert peak_of_a_run(made, problem.persistent_bytes) == peaks[-1]
        # The same is told to a process that knows no kernel.
        assert Pricing(KnownCost.of(cost, made, {}), registry()).problem(made) == problem
    assert peaks[0] > peaks[1]


def peak_of_a_run(graph, held):
    """What the allocator says of a run, on top of the operands."""
    executable = Executable(lower(graph, Schedule.program_order(graph), registry()), name="recurrent")
    inputs = random_inputs(graph)
    executable.run(copied(inputs))
    made = []
    return record(lambda: made.append(executable.run(inputs))).peak_bytes(held)

"""Products that add to what they would be added to: the same numbers up to rounding, and never more bytes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.frontends.torch_step import capture_step
from neaptide.ops import registry
from neaptide.ops.aten.dialect import ADD
from neaptide.transform.rewrite import apply_rule
from neaptide.transform.rules import RULES
from support.steps import trained
from support.torch_programs import Recorder
from transform.fission_play import assert_same_numbers, last_of, peak, random_inputs, refused, run_measured

RULE = RULES["accumulate_in_gemm"]


class Attention(nn.Module):
    """Three projections of one activation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(-1, -2), -1)
        return x + weights @ self.value(x)


class Gated(nn.Module):
    """Two branches of one activation, and one matrix on both ends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.gate = (nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(F.silu(self.gate(x)) * self.up(x), self.gate.weight.t())


def captured(kind, dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), kind(8), kind(8)).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    step = trained(optimizer, lambda x: model(x).square().sum())
    return capture_step(step, (torch.randn(3, 5, 6, dtype=dtype),)).steady.graph


def recorded(*outputs_of, alpha=None):
    """`x + a @ b`, with what `outputs_of` name as outputs beside the sum."""
    recorder = Recorder()
    a, b = (recorder.input(torch.randn(4, 4), name) for name in "ab")
    x = recorder.call("aten.exp.default", a)
    product = recorder.call("aten.mm.default", a, b)
    seen = recorder.call("aten.view.default", product, (2, 8))
    shown = recorder.call("aten.view.default", x, (2, 8))
    total = recorder.call("aten.add.Tensor", shown, seen, **({} if alpha is None else {"alpha": alpha}))
    named = {"x": x, "product": product, "view": seen}
    result = recorder.call("aten.sum.dim_IntList", total, [1])
    return recorder, recorder.finish([result, *(named[name] for name in outputs_of)])


@pytest.mark.parametrize("kind", [Attention, Gated])
def test_a_step_computes_the_same_in_fewer_operations_and_no_more_bytes(kind):
    graph = captured(kind)
    made = apply_rule(graph, registry(), RULE)
    sums = sum(len(rewrite.nodes) for rewrite in made.rewrites)
    assert sums >= 2
    after = made.edited.graph
    assert sum(node.op == ADD for node in after.nodes) == sum(node.op == ADD for node in graph.nodes) - sums
    assert peak(after) <= peak(graph)
    assert_same_numbers(after, graph)


def test_half_precision_is_no_further_from_the_truth():
    graph = captured(Attention, torch.bfloat16)
    inputs = random_inputs(graph)
    exact = [data.double() if isinstance(data, torch.Tensor) else data for data in inputs]
    rounded = [data.bfloat16() if isinstance(data, torch.Tensor) else data for data in inputs]
    truth = run_measured(captured(Attention, torch.float64), exact)

    def off(found):
        return max(float((a.double() - b).abs().max()) for a, b in zip(found, truth, strict=True))

    after = apply_rule(graph, registry(), RULE).edited.graph
    assert off(run_measured(after, rounded)) < 2 * off(run_measured(graph, rounded))


def test_in_the_place_of_what_it_adds_to():
    recorder, graph = recorded()
    made = apply_rule(graph, registry(), RULE).edited.graph
    assert "aten.addmm_.default" in [node.op for node in made.nodes]
    assert peak(made) < peak(graph)
    assert_same_numbers(made, graph, recorder.fresh_inputs())


def test_beside_what_it_adds_to_where_that_stays():
    recorder, graph = recorded("x")
    made = apply_rule(graph, registry(), RULE).edited.graph
    assert "aten.addmm.default" in [node.op for node in made.nodes]
    assert_same_numbers(made, graph, recorder.fresh_inputs())


@pytest.mark.parametrize("kept", ["product", "view"])
def test_a_product_that_is_used_elsewhere_stays(kept):
    _, graph = recorded(kept)
    assert "the product is used elsewhere" in refused(RULE, graph, last_of(graph, ADD))


def test_a_scaled_sum_stays():
    assert not list(RULE.find(recorded(alpha=2)[1], registry()))
    assert list(RULE.find(recorded(alpha=1)[1], registry()))


def test_what_is_written_into_before_the_sum_stays():
    recorder = Recorder()
    a, b = (recorder.input(torch.randn(4, 4), name) for name in "ab")
    x = recorder.call("aten.exp.default", a)
    product = recorder.call("aten.mm.default", a, b)
    x = recorder.call("aten.relu_.default", x)
    graph = recorder.finish([recorder.call("aten.add.Tensor", x, product)])
    assert "after the product" in refused(RULE, graph, last_of(graph, ADD))


def test_a_batch_of_products_adds_as_well():
    recorder = Recorder()
    a, b, x = (recorder.input(torch.randn(2, 4, 4), name) for name in "abx")
    product = recorder.call("aten.bmm.default", a, b)
    graph = recorder.finish([recorder.call("aten.add.Tensor", product, x)])
    made = apply_rule(graph, registry(), RULE).edited.graph
    assert [node.op for node in made.nodes] == ["aten.baddbmm.default"]
    assert_same_numbers(made, graph, recorder.fresh_inputs())


def test_a_product_added_to_itself_and_a_sum_that_grows_stay():
    recorder = Recorder()
    a, b, row = (
        recorder.input(torch.randn(*shape), name)
        for shape, name in (((4, 4), "a"), ((4, 4), "b"), ((4,), "r"))
    )
    product = recorder.call("aten.mm.default", a, b)
    twice = recorder.call("aten.add.Tensor", product, product)
    wider = recorder.call("aten.add.Tensor", recorder.call("aten.mm.default", b, a), row)
    assert not list(RULE.find(recorder.finish([twice, wider]), registry()))

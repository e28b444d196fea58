"""Copies of copies are made once: the same bits, fewer operations, and never more bytes."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neaptide.errors import RewriteError
from neaptide.frontends.torch_step import capture_step
from neaptide.ir.nodes import Named
from neaptide.ops import registry
from neaptide.ops.aten.dialect import CAST, CLONE, JOINS, PERMUTE
from neaptide.ops.dialect import EXACT
from neaptide.transform.rewrite import Rewrite, apply_rule
from neaptide.transform.rules import RULES
from support.together import together
from support.torch_programs import Recorder
from transform.fission_play import last_of, peak, random_inputs, refused, run_measured

RULE = RULES["redundant_copies"]
ROW_MAJOR = Named("memory_format", "contiguous_format")


class Packed(nn.Module):
    """Queries, keys and values are one projection, so that their gradients are a stack."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        packed = self.qkv(x).view(batch, seq, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, width))


class Upcast(nn.Module):
    """Scores of attention that are asked for in float32, as GPT-Neo does; autocast takes them back."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        query, key = (
            part(x).view(batch, seq, self.heads, width // self.heads).permute(0, 2, 1, 3).float()
            for part in (self.query, self.key)
        )
        return torch.matmul(query, key.transpose(-1, -2))


def captured(model, *, autocast=False):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = model(x).float().square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return capture_step(step, (torch.randn(2, 6, 8),)).steady.graph


def assert_same_bits(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.stride() == theirs.stride()
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("kind", "autocast"), [(Packed, False), (Packed, True), (Upcast, True)])
def test_a_step_keeps_every_bit_in_fewer_operations_and_no_more_bytes(kind, autocast):
    graph = captured(kind(8, 2), autocast=autocast)
    made = apply_rule(graph, registry(), RULE)
    assert sum(len(rewrite.nodes) for rewrite in made.rewrites) >= 1
    after = made.edited.graph

    def copies(graph):
        return sum(node.op in {CLONE, CAST, *JOINS} for node in graph.nodes)

    assert copies(after) < copies(graph)
    assert peak(after) <= peak(graph)
    inputs = random_inputs(graph)
    assert_same_bits(run_measured(after, inputs), run_measured(graph, inputs))


def joined(op, dim, order, *, use_first=False):
    """The sum of a copy of a join along a dim whose dims were permuted."""
    recorder = Recorder()
    a, b = (recorder.input(torch.randn(2, 3, 4), name) for name in "ab")
    first = recorder.call(op, [a, b], dim)
    seen = recorder.call(PERMUTE, first, order)
    second = recorder.call(CLONE, seen, memory_format=ROW_MAJOR)
    results = [recorder.call("aten.sum.default", second)]
    if use_first:
        results.append(recorder.call("aten.exp.default", first))
    return recorder, recorder.finish(results)


@together("dim", [0, 1, 2])
@together("op", list(JOINS))
def test_joins_lie_in_the_order_of_their_copy(op, dim):
    order = (2, 0, 3, 1) if JOINS[op] else (2, 0, 1)
    recorder, graph = joined(op, dim, order)
    made = apply_rule(graph, registry(), RULE).edited.graph
    assert CLONE not in [node.op for node in made.nodes]
    assert peak(made) < peak(graph)
    assert_same_bits(
        run_measured(made, recorder.fresh_inputs()), run_measured(graph, recorder.fresh_inputs())
    )


def casts(*dtypes, dtype=torch.float32, views=True):
    """One cast after another of the transposed, the last one dense."""
    recorder = Recorder()
    value = recorder.call("aten.exp.default", recorder.input(torch.randn(3, 4, dtype=dtype), "a"))
    for name in dtypes:
        seen = recorder.call("aten.t.default", value) if views else value
        value = recorder.call(CAST, seen, dtype=Named("dtype", name))
    value = recorder.call(CLONE, value, memory_format=ROW_MAJOR)
    return recorder, recorder.finish([recorder.call("aten.neg.default", value)])


@pytest.mark.parametrize(
    ("dtype", "names"),
    [
        (torch.bfloat16, ("float32", "bfloat16")),
        (torch.float16, ("float64", "float16")),
        (torch.float32, ("float64", "bfloat16")),
        (torch.float32, ("bfloat16",)),
    ],
)
def test_casts_that_lose_nothing_between_are_one_copy(dtype, names):
    recorder, graph = casts(*names, dtype=dtype)
    made = apply_rule(graph, registry(), RULE)
    assert len(made.rewrites) == 1
    after = made.edited.graph
    assert sum(node.op in {CLONE, CAST} for node in after.nodes) == 1
    assert_same_bits(
        run_measured(after, recorder.fresh_inputs()), run_measured(graph, recorder.fresh_inputs())
    )


def test_a_cast_that_rounds_stays():
    _, graph = casts("bfloat16", "float32", views=False)
    made = apply_rule(graph, registry(), RULE).edited.graph
    assert "bfloat16" in [made.values[node.outputs[0]].dtype for node in made.nodes]


def test_a_first_copy_that_is_used_elsewhere_stays():
    _, graph = joined("aten.cat.default", 0, (1, 0, 2), use_first=True)
    assert "used elsewhere" in refused(RULE, graph, last_of(graph, CLONE))


def test_a_first_copy_that_is_written_into_stays():
    recorder = Recorder()
    first = recorder.call(CLONE, recorder.input(torch.randn(3, 4), "a"))
    recorder.call("aten.relu_.default", first)
    second = recorder.call(CLONE, recorder.call("aten.t.default", first), memory_format=ROW_MAJOR)
    graph = recorder.finish([recorder.call("aten.neg.default", second)])
    assert re.search("written into|used elsewhere", refused(RULE, graph, last_of(graph, CLONE)))


def test_a_second_copy_that_is_larger_stays():
    recorder = Recorder()
    first = recorder.call(CLONE, recorder.input(torch.randn(3, 4, dtype=torch.bfloat16), "a"))
    second = recorder.call(CAST, first, dtype=Named("dtype", "float32"))
    graph = recorder.finish([recorder.call("aten.neg.default", second)])
    assert "the first copy is smaller" in refused(RULE, graph, last_of(graph, CAST))


def test_two_nodes_of_one_chain_are_refused():
    recorder = Recorder()
    value = recorder.input(torch.randn(3, 4), "a")
    for _ in range(3):
        value = recorder.call(CLONE, value)
    graph = recorder.finish([recorder.call("aten.neg.default", value)])
    (place,) = RULE.find(graph, registry())
    assert place.nodes == (2,)
    with pytest.raises(RewriteError, match="another copies"):
        RULE.apply(graph, registry(), Rewrite(RULE.name, (1, 2)))


def test_dtypes_that_hold_each_other_do():
    for name, wider in EXACT.items():
        dtype = getattr(torch, name)
        numbers = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(
            dtype if dtype.itemsize == 2 else torch.float16
        )
        numbers = numbers[numbers.isfinite()].to(dtype)
        for other in wider:
            assert torch.equal(numbers.to(getattr(torch, other)).to(dtype), numbers)

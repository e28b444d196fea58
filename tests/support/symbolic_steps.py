"""Recorded graphs with symbolic sizes, and a block of attention with its loss and gradients, at any shape and for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Named
from neaptide.ir.verify import verify
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.size_expr import SizeExpr
from support.torch_programs import SEED, Recorder

B, T = 7, 11
DIMS = {B: "B", T: "T"}
HIDDEN, HEADS = 6, 2


def attention(batch: int = B, tokens: int = T, *, layers: int = 1) -> tuple[Recorder, Graph]:
    """Sizes are arguments of reshapes, factories and sums."""
    r = Recorder()
    x = r.input(torch.randn(batch, tokens, HIDDEN), "x")
    weights = [r.input(torch.randn(3 * HIDDEN, HIDDEN), f"w{n}") for n in range(layers)]
    torch.manual_seed(SEED)  # the inputs were drawn as well
    bias = r.call("aten.zeros.default", [tokens, tokens])
    tapes = []
    for weight in weights:
        tapes.append(_forward(r, x, weight, bias, batch, tokens))
        x = tapes[-1][0]
    loss = r.call("aten.sum.default", x)
    grad = r.call("aten.expand.default", r.call("aten.ones_like.default", loss), [batch, tokens, HIDDEN])
    grads = []
    for tape in reversed(tapes):
        grad, of_weight = _backward(r, tape, grad, batch, tokens)
        grads.append(of_weight)
    return r, r.finish([loss, *grads])


def _forward(r, x, weight, bias, batch, tokens):
    call, part = r.call, HIDDEN // HEADS
    flat = call("aten.view.default", x, [batch * tokens, HIDDEN])
    qkv = call("aten.mm.default", flat, call("aten.t.default", weight))
    heads = call("aten.view.default", qkv, [batch, tokens, 3, HEADS, part])
    heads = call("aten.permute.default", heads, [2, 0, 3, 1, 4])
    whole = Named("memory_format", "contiguous_format")
    q, k, v = (
        call(
            "aten.view.default",
            call("aten.clone.default", call("aten.select.int", heads, 0, n), memory_format=whole),
            [batch * HEADS, tokens, part],
        )
        for n in range(3)
    )
    scores = call("aten.bmm.default", q, call("aten.transpose.int", k, 1, 2))
    chances = call("aten._softmax.default", call("aten.add.Tensor", scores, bias), -1, False)
    chances, mask = call("aten.native_dropout.default", chances, 0.25, True)
    mixed = call("aten.bmm.default", chances, v)
    mixed = call("aten.view.default", mixed, [batch, tokens, HIDDEN])
    out = call("aten.add.Tensor", x, call("aten.gelu.default", mixed))
    return out, x, flat, (q, k, v), chances, mask, mixed


def _backward(r, tape, grad, batch, tokens):
    call, part = r.call, HIDDEN // HEADS
    _, _, flat, (q, k, v), chances, mask, mixed = tape
    back = call("aten.gelu_backward.default", grad, mixed)
    back = call("aten.view.default", back, [batch * HEADS, tokens, part])
    to_v = call("aten.bmm.default", call("aten.transpose.int", chances, 1, 2), back)
    back = call("aten.bmm.default", back, call("aten.transpose.int", v, 1, 2))
    back = call("aten.native_dropout_backward.default", back, mask, 1 / 0.75)
    back = call("aten._softmax_backward_data.default", back, chances, -1, Named("dtype", "float32"))
    to_q = call("aten.bmm.default", back, k)
    to_k = call("aten.bmm.default", call("aten.transpose.int", back, 1, 2), q)
    rows = call("aten.cat.default", [to_q, to_k, to_v], 2)
    rows = call("aten.view.default", rows, [batch * tokens, 3 * HIDDEN])
    of_weight = call("aten.mm.default", call("aten.t.default", rows), flat)
    return call("aten.add.Tensor", grad, to_rows(r, to_q, batch, tokens)), of_weight


def to_rows(r, grad, batch, tokens):
    return r.call("aten.view.default", grad, [batch, tokens, HIDDEN])


def for_all_shapes(layers: int = 1, highest: int | None = None) -> Graph:
    """The block with the dims B and T, from 1 to `highest`."""
    graph = symbolised(attention(layers=layers)[1], DIMS)
    return replace(graph, dims=tuple(Dim(name, 1, highest) for name in DIMS.values()))


def symbolised(graph: Graph, dims: Mapping[int, str]) -> Graph:
    """The graph with a dim in place of each of some primes; no other number of it may have one of them as a factor."""

    def size(number: int) -> SizeExpr:
        result = SizeExpr.const(1)
        for prime, name in dims.items():
            while number and number % prime == 0:
                number //= prime
                result = result * SizeExpr.dim(name)
        return result * number

    def sizes(found: tuple[SizeExpr, ...]) -> tuple[SizeExpr, ...]:
        return tuple(size(n.constant_value()) for n in found)

    def argument(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(map(argument, arg))
        if isinstance(arg, bool) or not isinstance(arg, (int, SizeExpr)):
            return arg
        found = size(arg if isinstance(arg, int) else arg.constant_value())
        return arg if found.is_constant else found

    made = replace(
        graph,
        nodes=tuple(
            replace(
                node,
                args=tuple(map(argument, node.args)),
                kwargs=tuple((key, argument(arg)) for key, arg in node.kwargs),
            )
            for node in graph.nodes
        ),
        values=tuple(
            replace(
                value,
                shape=sizes(value.shape),
                strides=sizes(value.strides),
                offset=size(value.offset.constant_value()),
            )
            for value in graph.values
        ),
        storages=tuple(
            replace(storage, nbytes=size(storage.nbytes.constant_value())) for storage in graph.storages
        ),
    )
    verify(made)
    return made

"""Which results can have a place: those that fill their storage at every size."""

from __future__ import annotations

from dataclasses import replace

from neaptide.ir.builder import GraphBuilder
from neaptide.ops import registry
from neaptide.runtime.arena.fit import misfit
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.size_expr import SizeExpr
from support.together import together

B, T, ONE, ZERO = SizeExpr.dim("B"), SizeExpr.dim("T"), SizeExpr.const(1), SizeExpr.const(0)


def product():
    b = GraphBuilder("product", registry())
    x, w = b.input("x", (B, T)), b.input("w", (T, T))
    (y,) = b.node("aten.mm.default", x, w, outputs=["y: f32[{B}, {T}]"])
    b.output(y)
    graph = b.finish()
    return replace(graph, dims=(Dim("B", 1), Dim("T", 1)))


@together(
    ("shape", "strides", "offset", "nbytes", "fits"),
    [
        ((B, T), (T, ONE), ZERO, 4 * B * T, True),
        ((B, T), (ONE, B), ZERO, 4 * B * T, True),
        ((ONE, B, T), (B, T, ONE), ZERO, 4 * B * T, True),
        ((B, T), (T, ONE), ZERO, 4 * B * T + 4, False),
        ((B, T), (T, ONE), ONE, 4 * B * T, False),
        ((B, T), (2 * T, ONE), ZERO, 4 * B * T, False),
        ((B, B), (ONE, ONE), ZERO, 4 * B * B, False),
        ((), (), ZERO, SizeExpr.const(4), True),
    ],
)
def test_a_result_has_a_place_where_it_is_proved_to_fill_its_storage(shape, strides, offset, nbytes, fits):
    graph = product()
    (node,) = graph.nodes
    (number,) = node.outputs
    made = replace(graph.values[number], shape=shape, strides=strides, offset=offset)
    values = tuple(made if value.id == number else value for value in graph.values)
    found = misfit(replace(graph, values=values), registry(), node, made.storage, nbytes, is_again=False)
    assert found == ("" if fits else "it does not fill its storage")

"""Graphs with symbolic sizes: random ones, and Listing 1 of the BladeDISC++ paper."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from neaptide.ir.builder import GraphBuilder
from neaptide.ir.graph import Graph
from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.steps import to_steps
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.size_expr import SizeExpr, maximum
from support.drawn import graphs

B, T, S = map(SizeExpr.dim, ("B", "T", "S"))
FORMS = (
    B * T,
    B * T * 8,
    B,
    T,
    T * T,
    B * T * T,
    T // 2 * B,
    (T + 3) // 4 * 4,
    T % 5 + 1,
    maximum(B, T),
    S * 3,
    SizeExpr.const(64),
    B * T + 17 * B,
)


@st.composite
def symbolic_graphs(draw: st.DrawFn, max_nodes: int = 14) -> Graph:
    """Random graphs whose storages have symbolic sizes, with ranges, and with a relation or without."""
    graph = draw(graphs(min_nodes=1, max_nodes=max_nodes))
    dims = (Dim("B", 1, 5), Dim("T", draw(st.integers(1, 4)), 12), Dim("S", 0, 60))
    relations = draw(st.sampled_from([(), (Relation(S, 4 * T),), (Relation(T, 2 * (T // 2)),)]))
    storages = tuple(
        replace(storage, nbytes=draw(st.sampled_from(FORMS)) * draw(st.integers(1, 9)))
        for storage in graph.storages
    )
    return replace(graph, storages=storages, dims=dims, relations=relations)


@st.composite
def problem_orders(draw: st.DrawFn, structure: OrderProblem) -> tuple[int, ...]:
    """A random legal order of an ordering problem. A view stays where it is beside mutations of its storage."""
    state = DownsetState(to_steps(structure))
    while state.ready:
        state.run(draw(st.sampled_from(sorted(state.ready))))
    return state.order()


def shapes_of(graph: Graph) -> list[dict[str, int]]:
    """All shapes of such a graph."""
    b, t, s = graph.dims
    found = [
        {"B": x, "T": y, "S": z}
        for x in range(b.low, (b.high or 0) + 1)
        for y in range(t.low, (t.high or 0) + 1)
        for z in range(s.low, (s.high or 0) + 1)
    ]
    return [
        shape
        for shape in found
        if all(r.left.evaluate(shape) == r.right.evaluate(shape) for r in graph.relations)
    ]


def listing_1(*, copies: bool, related: bool = True) -> Graph:
    """Listing 1 of BladeDISC++ (arXiv 2412.16985), with float32 elements; its reshape copies, or is a view."""
    b = GraphBuilder("listing_1")
    s0, s1 = b.dim("S0", 12), b.dim("S1", 1)
    if related:
        b.relation(s0, 12 * s1)
    arg0, arg1 = b.input("arg0", (s0,)), b.input("arg1", (12, 11008))
    base = "" if copies else " @arg0"
    (x1,) = b.node("toy.broadcast", arg1, outputs=["x1: f32[4096, {S0}]"])
    (x2,) = b.node("toy.reshape", arg0, outputs=["x2: f32[{S1}, 12]" + base])
    (x3,) = b.node("toy.dot", x2, arg1, outputs=["x3: f32[{S1}, 11008]"])
    (x4,) = b.node("toy.reduce", x3, outputs=["x4: f32[{S1}]"])
    (x1084,) = b.node("toy.broadcast", x4, outputs=["x1084: f32[11008, {S1}]"])
    (x1085,) = b.node("toy.broadcast", arg0, outputs=["x1085: f32[1024, {S0}]"])
    b.output(x1, x1084, x1085)
    return b.finish()

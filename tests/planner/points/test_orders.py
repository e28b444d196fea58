"""In what order a program for all shapes runs: what is said of its peak holds at every shape."""

from __future__ import annotations

from hypothesis import given, settings

from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.outcome import Limits
from neaptide.planner.points.orders import orders_for_range
from neaptide.planner.points.shaped import ShapedProgram
from schedule.symbolic.symbolic_graphs import shapes_of, symbolic_graphs
from support.drawn import examples


def shaped_of(graph, sample, order=None):
    rows = OpRegistry([OpSpec(op) for op in sorted({node.op for node in graph.nodes})])
    cost = EstimatedCost(get_device("rtx3090"), rows)
    return ShapedProgram(graph, cost, order or range(len(graph.nodes)), sample)


def branches():
    """Two wide values are made before either is summed up; the narrow one of the other kind is made first."""
    b = GraphBuilder("branches")
    x = b.input("x", (b.dim("T", 1, 50),))
    (left,) = b.node("toy.a", x, outputs=["left: f32[{100*T}]"])
    (right,) = b.node("toy.b", x, outputs=["right: f32[{100*T}]"])
    (small,) = b.node("toy.c", left, outputs=["small: f32[1]"])
    (other,) = b.node("toy.d", right, outputs=["other: f32[1]"])
    (end,) = b.node("toy.e", small, other, outputs=["end: f32[1]"])
    b.output(end)
    return b.finish()


def check(graph, shapes):
    orders = orders_for_range(shaped_of(graph, shapes[0]), Limits(work=100))
    programs = [shaped_of(graph, shapes[0], order.sequence) for order in orders]
    lower = 0
    for shape in shapes:
        peaks = [program.at(shape).peak_bytes for program in programs]
        assert peaks == [order.peak.evaluate(shape) for order in orders]
        assert peaks[-1] <= peaks[0]
        lower += peaks[-1] < peaks[0]
    assert len(orders) == 1 or lower
    return orders


def test_an_order_that_is_nowhere_higher_and_somewhere_lower_is_found():
    early, best = check(branches(), [{"T": size} for size in range(1, 51)])
    assert early.sequence == tuple(range(5))
    assert best.sequence in {(0, 2, 1, 3, 4), (1, 3, 0, 2, 4)}
    assert "at no shape in the ranges above" in best.reason
    assert "below at T = 1" in best.reason


@settings(deadline=None, max_examples=examples(60))
@given(symbolic_graphs(max_nodes=9))
def test_what_is_proved_holds_at_every_shape(graph):
    check(graph, shapes_of(graph))

"""The lines of `explain` on axes: what is said of operations that no row is about."""

from __future__ import annotations

from neaptide.analysis.axes.whole_graph import axes_in_words, operations_without_axes
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Source
from neaptide.ir.values import Kind
from neaptide.ops import registry

ROWS = 7


def chain(*ops: str, phase: str = "forward") -> Graph:
    """Operations one after the other, on a few rows."""
    builder = GraphBuilder("chain")
    value = builder.input("x", (ROWS, 4), kind=Kind.INPUT)
    for number, op in enumerate(ops):
        made = f"v{number}: f32[{ROWS}, 4]"
        (value,) = builder.node(op, value, outputs=[made], source=Source(phase=phase))
    builder.output(value)
    return builder.finish()


def missing(graph: Graph) -> list[str]:
    return [line for line in axes_in_words(graph, registry()) if line.startswith("not split")]


def test_what_has_no_row_is_counted_and_named():
    graph = chain("mine.bend", "aten.exp.default", "mine.fold", "mine.bend")
    assert missing(graph) == [
        "not split, for want of a row of axes: 3 of 4 operations, mine.bend (2), mine.fold (1)"
    ]


def test_the_most_frequent_are_named_and_the_others_counted():
    ops = [f"mine.op_{number}" for number in range(6) for _ in range(6 - number)]
    (line,) = missing(chain(*ops))
    assert line == (
        "not split, for want of a row of axes: 21 of 21 operations,"
        " mine.op_0 (6), mine.op_1 (5), mine.op_2 (4), mine.op_3 (3) and 2 more"
    )


def test_nothing_is_said_where_every_operation_has_a_row():
    graph = chain("aten.exp.default", "aten.neg.default")
    assert missing(graph) == []
    assert axes_in_words(graph, registry())


def test_updates_of_an_optimizer_need_no_row():
    assert missing(chain("mine.update", phase="optimizer")) == []


def test_a_row_that_says_that_nothing_runs_in_parts_is_one():
    graph = chain("aten.prelu.default")
    row = registry().require("aten.prelu.default").axes
    assert row is not None
    assert row.axes is None
    assert operations_without_axes(graph, registry()) == {}

"""The axes of a graph as lines of text."""

from __future__ import annotations

from typing import Final

from neaptide.analysis.axes.whole_graph import (
    GraphAxis,
    begins_in_the_batch,
    graph_axes,
    operations_without_axes,
)
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry

_MOST_LINES: Final = 6
_MOST_NAMES: Final = 4


def axes_in_words(graph: Graph, registry: OpRegistry) -> tuple[str, ...]:
    """One line for each of the axes that begin in the batch and of the longest others, and one for what has no row.

    Empty where sizes are symbolic: an axis is followed by its length. Costs what `graph_axes` costs.
    """
    if not all(extent.is_constant for value in graph.values for extent in value.shape):
        return ()
    found = [axis for axis in graph_axes(graph, registry) if axis.length > 1]
    found.sort(key=lambda axis: not begins_in_the_batch(graph, axis))  # stable: those of most nodes first
    lines = [_described(graph, axis) for axis in found[:_MOST_LINES]]
    if len(found) > _MOST_LINES:
        lines.append(f"{len(found) - _MOST_LINES} more")
    missing = operations_without_axes(graph, registry)
    if missing:
        names = [f"{op} ({count})" for op, count in missing.most_common(_MOST_NAMES)]
        more = len(missing) - len(names)
        rest = f" and {more} more" if more else ""
        lines.append(
            f"not split, for want of a row of axes: {missing.total()} of {len(graph.nodes)} operations,"
            f" {', '.join(names)}{rest}"
        )
    return tuple(lines)


def _described(graph: Graph, axis: GraphAxis) -> str:
    value, dim = axis.origin
    return f"axis of {axis.length:,} through {len(axis.nodes):,} operations, from {graph.values[value].name} dim {dim}"

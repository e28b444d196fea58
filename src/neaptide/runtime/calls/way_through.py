"""A straight way through the ranges of dims, from the smallest shape to the largest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neaptide.errors import SymbolicError, UsageError
from neaptide.ir.graph import Graph
from neaptide.symbolic.relations import SizeRelations

_STEPS: Final = 64  # in which the way is looked at


def way_through(graph: Graph) -> list[Mapping[str, int]]:
    """A straight way through the range of a graph, from its smallest shape to its largest, of shapes that keep all relations."""
    if without := [dim.name for dim in graph.dims if dim.high is None]:
        raise UsageError(
            f"{', '.join(without)} may be as large as it likes",
            why="a plan keeps to its bytes up to a largest shape",
            next_step="give each range an upper end, such as (16, 4096)",
        )
    store = SizeRelations(graph.dims, graph.relations)
    found: list[Mapping[str, int]] = []
    for step in range(_STEPS + 1):
        shape = {dim.name: dim.low + ((dim.high or 0) - dim.low) * step // _STEPS for dim in graph.dims}
        try:
            known = store.binding(shape)
        except SymbolicError:
            continue  # it breaks a relation, as one that sizes are even
        if known not in found:
            found.append(known)
    if not found:
        raise UsageError("no shape in the range keeps the relations between its dims")
    return found

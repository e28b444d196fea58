"""Loops as Python text: parts of the inputs are views, parts of the results are copied or added into place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from neaptide.errors import LoweringError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Loop, Node
from neaptide.ir.values import Value
from neaptide.lower.sizes import grouped
from neaptide.lower.torch_calls import CallWriter
from neaptide.symbolic.size_expr import SizeExpr

Emit = Callable[[str, int], None]
"""Takes a line and how many levels deeper than the function's it lies."""


def write_loop(
    graph: Graph,
    node: Node,
    body: str,
    calls: CallWriter,
    emit: Emit,
    places: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """Emit a loop over the function `body`. O(inputs + outputs).

    What is alive on the way is the results, whole, and what the body holds: parts of a result die before the next
    trip begins.

    Args:
        graph: the program.
        node: with a loop in it.
        body: name of the function that does one trip.
        calls: writes texts.
        emit: takes the lines.
        places: by output, an expression for a tensor that it is put together in; fresh ones for the others.

    Raises:
        LoweringError: a merged result that is a host scalar, or a size that is not known.
    """
    loop: Loop = node.regions[0]
    names = calls.names
    trip = names.fresh("trip")
    merged = [
        (merge, graph.values[node.outputs[merge.output]], names.fresh("part", k), names.fresh("at", k))
        for k, merge in enumerate(loop.merges)
    ]
    for merge, value, _, at in merged:
        fill = ".zero_()" if merge.how == "sum" else ""
        whole = places.get(merge.output) or _fresh(graph, node, value, calls)
        emit(f"{names.variable(value)} = {whole}{fill}", 0)
        if merge.how == "concat":
            emit(f"{at} = 0", 0)
    emit(f"for {trip} in range({calls.size(loop.trip_count, node)}):", 0)
    results = f"[{', '.join(part for _, _, part, _ in merged)}] = " if merged else ""
    emit(f"{results}{body}([{', '.join(_arguments(graph, node, calls, trip))}])", 1)
    for merge, value, part, at in merged:
        whole = names.variable(value)
        if merge.how == "sum":
            emit(f"{whole}.add_({part})", 1)
        else:
            length = f"{part}.size({merge.axis})"
            emit(f"{whole}.narrow({merge.axis}, {at}, {length}).copy_({part})", 1)
            emit(f"{at} += {length}", 1)
    if merged:
        emit(f"del {', '.join(part for _, _, part, _ in merged)}", 1)


def part_lengths(body: Graph) -> Iterator[tuple[str, Value, int]]:
    """Dimensions of a loop's body that its inputs tell: name, input and axis, each dimension once."""
    found = set()
    for number in body.inputs:
        value = body.values[number]
        for axis, extent in enumerate(value.shape):
            for dim in extent.dims():
                if dim not in found and extent == SizeExpr.dim(dim):
                    found.add(dim)
                    yield dim, value, axis


def _fresh(graph: Graph, node: Node, value: Value, calls: CallWriter) -> str:
    if value.storage is None:
        raise LoweringError(
            f"{value.name} is a number and cannot be merged", where=node.source.location or None
        )
    return calls.empty(graph, node, value)


def _arguments(graph: Graph, node: Node, calls: CallWriter, trip: str) -> Iterator[str]:
    loop = node.regions[0]
    sliced = {part.input: part for part in loop.slices}
    needed = set(needed_inputs(graph, node))
    for position, number in enumerate(node.inputs):
        value = graph.values[number]
        name = calls.names.variable(value) if number in needed else calls.stand_in(graph, node, value)
        if position in sliced:
            axis, step = sliced[position].axis, sliced[position].step
            length = value.shape[axis]
            at = f"{trip} * {grouped(calls.size(step, node))}"
            part = calls.size(step, node)
            if step * loop.trip_count != length:
                part = f"min({part}, {calls.size(length, node)} - {at})"
            name = f"{name}.narrow({axis}, {at}, {part})"
        yield name

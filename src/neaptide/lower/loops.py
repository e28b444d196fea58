"""Loops as Python text: parts of the inputs and of the joined results are views, sums are added to as they are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from neaptide.analysis.loops import first_trip_writes
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import own_length, part_dim
from neaptide.ir.nodes import Loop, Node, SliceMap
from neaptide.lower.dims import told_dims
from neaptide.lower.names import grouped
from neaptide.lower.torch_calls import CallWriter

Emit = Callable[[str, int], None]
"""Takes a line and how many levels deeper than the function's it lies."""


def write_loop(
    graph: Graph, node: Node, body: str, calls: CallWriter, emit: Emit, places: Mapping[int, str]
) -> None:
    """Emit a loop over the function `body`. O(inputs + outputs).

    What is live on the way is the results, whole, and what the body holds. `places` are expressions for tensors that
    results are put together in, by output; fresh ones for the others.
    """
    loop: Loop = node.regions[0]
    names = calls.names
    trip = names.fresh("trip")
    overwritten = first_trip_writes(loop)
    wholes, joins = [], {}
    for k, (merge, number) in enumerate(zip(loop.merges, loop.destinations(), strict=True)):
        value = graph.values[node.outputs[merge.output]]
        wholes.append(names.variable(value))
        fill = ".zero_()" if merge.how == "sum" and number not in overwritten else ""
        emit(f"{wholes[k]} = {places.get(merge.output) or calls.empty(graph, node, value)}{fill}", 0)
        if merge.how == "concat":
            joins[k] = names.fresh("at", k), loop.body.values[number].shape[merge.axis]
    for at, _ in joins.values():
        emit(f"{at} = 0", 0)
    emit(f"for {trip} in range({calls.size(loop.trip_count, node)}):", 0)
    outer_dims = calls.dims
    calls.dims = _part_dims(graph, node, calls, trip, emit) if joins else outer_dims
    lengths = {k: calls.size(extent, node) for k, (_, extent) in joins.items()}
    calls.dims = outer_dims
    for k, (at, _) in joins.items():
        wholes[k] += f".narrow({loop.merges[k].axis}, {at}, {lengths[k]})"
    arguments = [*_arguments(graph, node, calls, trip), *wholes]
    first = f", {trip} == 0" if overwritten else ""
    variables = [calls.dims[dim] for dim in handed_dims(loop, calls.dims)]
    handed = "".join(f", {name}={name}" for name in variables)
    emit(f"{body}([{', '.join(arguments)}]{first}{handed})", 1)
    for k, (at, _) in joins.items():
        emit(f"{at} += {lengths[k]}", 1)


def handed_dims(loop: Loop, known: Collection[str]) -> tuple[str, ...]:
    """Dims of the function around a loop that its body takes: all but those that its parts tell."""
    body, around = loop.body, frozenset(known)
    extents = (body.values[body.inputs[part.input]].shape[part.axis] for part in loop.slices)
    told = {found.dim for extent in extents if (found := part_dim(extent, around)) is not None}
    return tuple(sorted(around - told))


def part_lengths(body: Graph, calls: CallWriter) -> Iterator[tuple[str, str]]:
    """Dimensions of a loop's body that its inputs tell, each once: variable and text; later ones may use earlier ones.

    Those that `calls` has are known, and those that are found are put there.
    """
    for value, axis, told in told_dims(map(body.values.__getitem__, body.inputs), calls.dims):
        length = f"{calls.names.variable(value)}.size({axis})"
        text = _solved(length, calls.size(told.rest), calls.size(told.scale))
        calls.dims[told.dim] = calls.names.fresh(told.dim, "dim")
        yield calls.dims[told.dim], text


def _part_dims(graph: Graph, node: Node, calls: CallWriter, trip: str, emit: Emit) -> dict[str, str]:
    """Emit the sizes of a trip; the variables of the dims around the loop and of those of its body."""
    loop = node.regions[0]
    dims = dict(calls.dims)
    known = frozenset(dims)
    for part in loop.slices:
        told = part_dim(loop.body.values[loop.body.inputs[part.input]].shape[part.axis], known)
        if told is None:
            continue
        length = _length(graph, node, calls, trip, part)
        rest = calls.size(told.rest - part.halo, node)
        name = calls.names.fresh(told.dim, ("trip", node.id, graph.name))
        emit(f"{name} = {_solved(length, rest, calls.size(told.scale, node))}", 1)
        dims[told.dim] = name
    return dims


def _solved(length: str, rest: str, scale: str) -> str:
    """The dim of which `length` is `scale` times as much and `rest`."""
    if rest != "0":
        length = f"({length} - {grouped(rest)})"
    return length if scale == "1" else f"{length} // {grouped(scale)}"


def _length(graph: Graph, node: Node, calls: CallWriter, trip: str, part: SliceMap) -> str:
    """How many elements of its own a part of an input has in a trip."""
    whole = own_length(part, graph.values[node.inputs[part.input]])
    step = calls.size(part.step, node)
    if part.step * node.regions[0].trip_count == whole:
        return step
    return f"min({step}, {calls.size(whole, node)} - {trip} * {grouped(step)})"


def _arguments(graph: Graph, node: Node, calls: CallWriter, trip: str) -> Iterator[str]:
    sliced = {part.input: part for part in node.regions[0].slices}
    needed = set(needed_inputs(graph, node))
    for position, number in enumerate(node.inputs):
        value = graph.values[number]
        name = calls.names.variable(value) if number in needed else calls.stand_in(graph, node, value)
        if position in sliced:
            part = sliced[position]
            at = f"{trip} * {grouped(calls.size(part.step, node))}"
            halo = f" + {part.halo}" if part.halo else ""
            name = f"{name}.narrow({part.axis}, {at}, {_length(graph, node, calls, trip, part)}{halo})"
        yield name

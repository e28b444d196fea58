"""Loops as Python text: parts of the inputs and of the joined results are views, sums are added to as they are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType

from neaptide.analysis.loops import first_trip_writes
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import own_length, part_dim
from neaptide.ir.nodes import Loop, MergeMap, Node
from neaptide.ir.values import Value
from neaptide.lower.names import grouped
from neaptide.lower.torch_calls import CallWriter

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

    What is alive on the way is the results, whole, and what the body holds.

    Args:
        places: by output, an expression for a tensor that it is put together in; fresh ones for the others.
    """
    loop: Loop = node.regions[0]
    names = calls.names
    trip = names.fresh("trip")
    overwritten = first_trip_writes(loop)
    merged = list(zip(loop.merges, loop.destinations(), strict=True))
    for merge, number in merged:
        value = graph.values[node.outputs[merge.output]]
        fill = ".zero_()" if merge.how == "sum" and number not in overwritten else ""
        emit(
            f"{names.variable(value)} = {places.get(merge.output) or calls.empty(graph, node, value)}{fill}",
            0,
        )
    joins = [
        _Join(graph, node, merge, loop.body.values[number], names.fresh("at", k))
        for k, (merge, number) in enumerate(merged)
        if merge.how == "concat"
    ]
    for join in joins:
        emit(f"{join.at} = 0", 0)
    emit(f"for {trip} in range({calls.size(loop.trip_count, node)}):", 0)
    outer_dims = calls.dims
    calls.dims = _part_dims(graph, node, calls, trip, emit) if joins else outer_dims
    lengths = [calls.size(join.part.shape[join.merge.axis], node) for join in joins]
    calls.dims = outer_dims
    arguments = list(_arguments(graph, node, calls, trip))
    spans = {join.merge.output: (join, length) for join, length in zip(joins, lengths, strict=True)}
    for merge, _ in merged:
        whole = names.variable(graph.values[node.outputs[merge.output]])
        if merge.output in spans:
            join, length = spans[merge.output]
            whole = f"{whole}.narrow({merge.axis}, {join.at}, {length})"
        arguments.append(whole)
    first = f", {trip} == 0" if overwritten else ""
    handed = "".join(
        f", {name}={name}" for name in map(calls.dims.__getitem__, handed_dims(loop, calls.dims))
    )
    emit(f"{body}([{', '.join(arguments)}]{first}{handed})", 1)
    for join, length in zip(joins, lengths, strict=True):
        emit(f"{join.at} += {length}", 1)


def added_text(graph: Graph, node: Node, variable: Callable[[Value], str], first: str) -> str:
    """The addition of a part to a sum that the first trip begins by overwriting it."""
    into, part = (variable(graph.values[v]) for v in node.inputs)
    return f"{into}.copy_({part}) if {first} else {into}.add_({part})"


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
    known = calls.dims
    extents = [
        (extent, body.values[number], axis)
        for number in body.inputs
        for axis, extent in enumerate(body.values[number].shape)
    ]
    count = -1
    while count < len(known):  # an extent may tell a dim once another one is known
        count = len(known)
        for extent, value, axis in extents:
            told = part_dim(extent, frozenset(known))
            if (
                told is None
                or told.dim in known
                or not (told.scale.dims() | told.rest.dims()) <= known.keys()
            ):
                continue
            length = f"{calls.names.variable(value)}.size({axis})"
            text = _solved(length, calls.size(told.rest), calls.size(told.scale))
            known[told.dim] = calls.names.fresh(told.dim, "dim")
            yield known[told.dim], text


class _Join:
    """A result that is joined from parts: which one, the part in the body, and the variable that says how far it is."""

    def __init__(self, graph: Graph, node: Node, merge: MergeMap, part: Value, at: str) -> None:
        self.whole = graph.values[node.outputs[merge.output]]
        self.merge, self.part, self.at = merge, part, at


def _part_dims(graph: Graph, node: Node, calls: CallWriter, trip: str, emit: Emit) -> dict[str, str]:
    """Emit the sizes of a trip; the variables of the dims around the loop and of those of its body."""
    loop = node.regions[0]
    dims = dict(calls.dims)
    known = frozenset(dims)
    for part in loop.slices:
        told = part_dim(loop.body.values[loop.body.inputs[part.input]].shape[part.axis], known)
        if told is None:
            continue
        length = _length(graph, node, calls, trip, part.input)
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


def _length(graph: Graph, node: Node, calls: CallWriter, trip: str, position: int) -> str:
    """How many elements of its own a part of an input has in a trip."""
    loop = node.regions[0]
    part = next(part for part in loop.slices if part.input == position)
    whole = own_length(part, graph.values[node.inputs[position]])
    step = calls.size(part.step, node)
    if part.step * loop.trip_count == whole:
        return step
    return f"min({step}, {calls.size(whole, node)} - {trip} * {grouped(step)})"


def _arguments(graph: Graph, node: Node, calls: CallWriter, trip: str) -> Iterator[str]:
    loop = node.regions[0]
    sliced = {part.input: part for part in loop.slices}
    needed = set(needed_inputs(graph, node))
    for position, number in enumerate(node.inputs):
        value = graph.values[number]
        name = calls.names.variable(value) if number in needed else calls.stand_in(graph, node, value)
        if position in sliced:
            part = sliced[position]
            at = f"{trip} * {grouped(calls.size(part.step, node))}"
            halo = f" + {part.halo}" if part.halo else ""
            name = f"{name}.narrow({part.axis}, {at}, {_length(graph, node, calls, trip, position)}{halo})"
        yield name

"""Loops as Python text: parts of the inputs are views, parts of the results are copied or added into place."""

from __future__ import annotations

from collections.abc import Callable

from neaptide.errors import LoweringError
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Loop, Node
from neaptide.ir.values import contiguous_strides
from neaptide.lower.torch_calls import CallWriter, device_of

Emit = Callable[[str, int], None]
"""Takes a line and its depth below the function's."""


def write_loop(graph: Graph, node: Node, body: str, calls: CallWriter, emit: Emit) -> None:
    """Emit a loop over the function `body`. O(inputs + outputs).

    What is alive on the way is the results, whole, and what the body holds: parts of a result die before the next
    trip begins.

    Raises:
        LoweringError: a merged result that is a host scalar, or a size that is not a number.
    """
    loop: Loop = node.regions[0]
    names = calls.names
    trip = names.fresh("trip")
    merges = [(merge, graph.values[node.outputs[merge.output]]) for merge in loop.merges]
    for merge, value in merges:
        if value.storage is None:
            raise LoweringError(
                f"{value.name} is a number and cannot be merged", where=node.source.location or None
            )
        shape = [calls.size(n, node) for n in value.shape]
        options = f"dtype=torch.{value.dtype}, device={calls.device(device_of(graph, value))}"
        if value.strides == contiguous_strides(value.shape):
            make = f"torch.empty({shape}, {options})"
        else:
            strides = [calls.size(n, node) for n in value.strides]
            make = f"torch.empty_strided({shape}, {strides}, {options})"
        emit(f"{names.variable(value)} = {make}{'.zero_()' if merge.how == 'sum' else ''}", 0)
    emit(f"for {trip} in range({calls.size(loop.trip_count, node)}):", 0)
    parts = [names.fresh("part", k) for k in range(len(merges))]
    emit(f"[{', '.join(parts)}] = {body}([{', '.join(_arguments(graph, node, loop, calls, trip))}])", 1)
    for part, inner, (merge, value) in zip(parts, loop.body.outputs, merges, strict=True):
        whole = names.variable(value)
        if merge.how == "sum":
            emit(f"{whole}.add_({part})", 1)
            continue
        # Every part but the last is as long as the body says.
        step = calls.size(loop.body.values[inner].shape[merge.axis], node)
        place = f"{whole}.narrow({merge.axis}, {trip} * {step}, {part}.size({merge.axis}))"
        emit(f"{place}.copy_({part})", 1)
    if parts:
        emit(f"del {', '.join(parts)}", 1)


def _arguments(graph: Graph, node: Node, loop: Loop, calls: CallWriter, trip: str) -> list[str]:
    sliced = {part.input: part for part in loop.slices}
    needed = set(needed_inputs(graph, node))
    texts = []
    for position, number in enumerate(node.inputs):
        value = graph.values[number]
        name = calls.names.variable(value) if number in needed else calls.stand_in(graph, node, value)
        if position in sliced:
            axis, step = sliced[position].axis, calls.size(sliced[position].step, node)
            length = calls.size(value.shape[axis], node)
            trips = calls.size(loop.trip_count, node)
            part = str(step) if trips * step <= length else f"min({step}, {length} - {trip} * {step})"
            name = f"{name}.narrow({axis}, {trip} * {step}, {part})"
        texts.append(name)
    return texts

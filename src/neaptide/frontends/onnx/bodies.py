"""Subgraphs of `If`, `Loop` and `Scan`: what they use from around them, and the bytes that they have alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neaptide.errors import UnsupportedModel
from neaptide.frontends.onnx.draft import called, subgraphs, tensor_type
from neaptide.frontends.onnx.dtypes import nbytes_of

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def captures_of(node: NodeProto) -> tuple[str, ...]:
    """Values around a node that its subgraphs use, in the order of their first use."""
    found: dict[str, None] = {}
    for inner in subgraphs(node):
        _captures(inner, frozenset(), found)
    return tuple(found)


def body_bytes(node: NodeProto) -> int:
    """Most bytes that the subgraphs of a node have alive while they run in file order; one runs at a time.

    Values that are made die after their last use. What is handed in counts where the subgraph names it as an input.

    Raises:
        UnsupportedModel: the size of a value inside is not known.
    """
    return max((_peak(node, inner) for inner in subgraphs(node)), default=0)


def _captures(graph: GraphProto, inside: frozenset[str], found: dict[str, None]) -> None:
    own = {*inside, *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)}
    for node in graph.node:
        found.update(dict.fromkeys(name for name in node.input if name and name not in own))
        for inner in subgraphs(node):
            _captures(inner, frozenset(own), found)
        own.update(node.output)
    found.update(dict.fromkeys(value.name for value in graph.output if value.name not in own))


def _peak(owner: NodeProto, graph: GraphProto) -> int:
    sizes: dict[str, int | None] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        known = tensor_type(value.type, f"the value {value.name!r}, inside {called(owner)},")
        if known is None or known.shape is None or not all(isinstance(d, int) for d in known.shape):
            sizes[value.name] = None
        else:
            sizes[value.name] = nbytes_of(known.dtype, [d for d in known.shape if isinstance(d, int)])
    last = {name: place for place, node in enumerate(graph.node) for name in node.input}
    last |= {name: place for place, node in enumerate(graph.node) for name in captures_of(node)}
    last |= {value.name: len(graph.node) for value in graph.output}
    alive = {value.name: _size(owner, sizes, value.name) for value in graph.input}
    peak = now = sum(alive.values())
    for place, node in enumerate(graph.node):
        made = {name: _size(owner, sizes, name) for name in node.output if name}
        alive |= made
        now += sum(made.values())
        peak = max(peak, now + body_bytes(node))
        for name in [name for name in alive if last.get(name, place) <= place]:
            now -= alive.pop(name)
    return peak


def _size(owner: NodeProto, sizes: dict[str, int | None], name: str) -> int:
    found = sizes.get(name)
    if found is None:
        raise UnsupportedModel(
            f"the size of {name!r}, inside {called(owner)}, is not known",
            why="what a subgraph needs is the most that its values have alive",
            next_step="export the model with fixed shapes, or without the condition or loop",
        )
    return found

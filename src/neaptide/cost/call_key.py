"""What tells calls of one graph, or of a graph and its variants, apart: calls with equal keys cost the same."""

from __future__ import annotations

from collections.abc import Hashable

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node


def call_key(graph: Graph, node: Node) -> Hashable:
    """Equal for calls of equal cost, whatever the ids. O(size of the node), without making text or numbers of sizes.

    It covers the operation and its arguments, and of operands and results dtype, shape, strides, offset, device, size of
    the storage, and which of them share one.
    """
    values, storages, effects = graph.values, graph.storages, node.effects
    group_of: dict[int, int] = {}
    facts: list[Hashable] = []
    for number in (*node.inputs, *node.outputs):
        value = values[number]
        storage = value.storage
        if storage is None:
            facts.append(value.dtype)
            continue
        group = group_of.setdefault(storage, len(group_of))
        block = storages[storage]
        facts.append(
            (value.dtype, value.shape, value.strides, value.offset, group, block.nbytes, block.device)
        )
    used = (
        tuple([group_of.get(access.storage) for access in effects.reads]),
        tuple([group_of.get(access.storage) for access in effects.writes]),
        effects.rng,
        effects.collective,
        effects.host,
    )
    types = tuple(map(type, node.args))
    args = _typed(node.args) if tuple in types else (types, node.args)
    kwargs = tuple([(name, _typed(arg)) for name, arg in node.kwargs])
    return node.op, args, kwargs, node.results, len(node.inputs), tuple(facts), used, node.regions


def _typed(arg: Arg) -> Hashable:
    """An argument that is unlike another of another type: 1, 1.0 and True are equal to Python."""
    if isinstance(arg, tuple):
        return tuple([_typed(item) for item in arg])
    return arg.__class__, arg

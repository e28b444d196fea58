"""What bytes are for, where the frontend has not said so."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.values import Kind

_BETWEEN_STEPS: Final = frozenset({Kind.PARAMETER, Kind.OPTIMIZER_STATE})
_STATE: Final = frozenset({*_BETWEEN_STEPS, Kind.GRADIENT})


def state_storages(graph: Graph) -> tuple[int, ...]:
    """Storages of the caller that are the state of a step, which may wait on the host while it runs. O(size of the graph).

    Parameters, gradients and optimizer states: nothing but the step has business with them meanwhile. What no node
    takes is not handed to the program, and stays.
    """
    kinds = storage_kinds(graph)
    taken = {graph.values[value].storage for node in graph.nodes for value in node.inputs}
    return tuple(
        storage for storage in graph.input_storages() if kinds[storage] in _STATE and storage in taken
    )


def storages_between_steps(graph: Graph) -> frozenset[int]:
    """Storages that may be on the host when a step begins, when it ends, or both. O(size of the graph).

    Parameters and optimizer states, those included that the step makes and hands back. A gradient may be anybody's between
    two steps, and so may what is handed back on the bytes of a parameter.
    """
    kinds, owned = storage_kinds(graph), set(graph.input_storages())
    handed_back = set(graph.output_storages())
    there = {*(set(state_storages(graph)) - handed_back), *(handed_back - owned)}
    return frozenset(storage for storage in there if kinds[storage] in _BETWEEN_STEPS)


def storage_kinds(graph: Graph) -> tuple[Kind, ...]:
    """The kind of each storage, in the words of PyTorch's memory profiler. O(size of the graph), once for a graph.

    A kind other than `TEMPORARY` that the graph states is kept. Otherwise: made in the backward phase and used by
    the optimizer phase is a gradient; handed back is an output; made in the forward phase and used by the
    backward phase is an activation; caller-owned is an input; the rest is temporary.
    """
    return graph.remembered(_storage_kinds)


def _storage_kinds(graph: Graph) -> tuple[Kind, ...]:
    made_in: dict[int, str] = {}
    used_in: dict[int, set[str]] = defaultdict(set)
    for node in graph.nodes:
        for storage in graph.created_storages(node):
            made_in[storage] = node.source.phase
        for access in (*node.effects.reads, *node.effects.writes):
            used_in[access.storage].add(node.source.phase)
    owned = set(graph.input_storages())
    outputs = set(graph.output_storages())
    kinds = []
    for block in graph.storages:
        kind = block.kind
        if kind is Kind.TEMPORARY:
            made, used = made_in.get(block.id, ""), used_in[block.id]
            if block.id in owned:
                kind = Kind.INPUT
            elif made == "backward" and "optimizer" in used:
                kind = Kind.GRADIENT
            elif block.id in outputs:
                kind = Kind.OUTPUT
            elif made == "forward" and "backward" in used:
                kind = Kind.ACTIVATION
        kinds.append(kind)
    return tuple(kinds)

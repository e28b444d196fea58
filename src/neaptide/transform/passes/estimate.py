"""What a region takes at most, whole and in parts, by its own tensors alone: enough to choose where it ends."""

from __future__ import annotations

from collections.abc import Callable

from neaptide.analysis.folded import folded_values
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.part_reading import bytes_of_values
from neaptide.transform.passes.region import Region
from neaptide.transform.passes.unroll import needs_of_part


def bytes_whole(graph: Graph, registry: OpRegistry, region: Region) -> int:
    """The most bytes of a region that runs whole; what it is handed dies after its last use."""
    return _most(graph, registry, region, lambda value: _nbytes(graph, value), _handed(graph, region))


def bytes_in_parts(graph: Graph, registry: OpRegistry, region: Region, parts: int) -> int:
    """The most bytes of a region in parts: its operands, what was made so far, and the widest place of a part.

    Raises:
        RewriteError: it has fewer elements along the axis than parts.
    """
    handed = _handed(graph, region)
    needs = needs_of_part(graph, region, parts // 2, parts)

    def nbytes(value: int) -> int:
        """Of a part; a cut of what is handed over counts beside it."""
        whole = _nbytes(graph, value)
        if value not in needs or value not in region.dims:
            return 0 if value in handed else whole
        begin, end = needs[value]
        length = graph.values[value].shape[region.dims[value]].constant_value()
        return 0 if value in handed and end - begin == length else whole * (end - begin) // length

    given = sum(_nbytes(graph, value) for value in handed)
    inner = _most(graph, registry, region, nbytes, set())
    result = _nbytes(graph, region.result)
    if region.is_sum:
        return given + result + inner
    return max(given + result * (parts - 1) // parts + inner, 2 * result)


def _handed(graph: Graph, region: Region) -> set[int]:
    """Values that a region is given, weights left out."""
    made = {value for number in region.nodes for value in graph.nodes[number].outputs}
    given = {value for number in region.nodes for value in graph.nodes[number].inputs}
    return given - made - folded_values(graph)


def _most(
    graph: Graph, registry: OpRegistry, region: Region, nbytes: Callable[[int], int], there: set[int]
) -> int:
    """The most bytes at a node of a region, in its order; `there` is what lies there before it begins."""
    weights = folded_values(graph)
    last = {value: number for number in region.nodes for value in graph.nodes[number].inputs}
    storage = graph.remembered(_storages)
    live = {storage[value]: nbytes(value) for value in there}
    most = 0
    for number in region.nodes:
        node = graph.nodes[number]
        for value in node.inputs:  # cuts come to be where they are used
            if value not in weights:
                live.setdefault(storage[value], nbytes(value))
        dying = {storage[value] for value in node.inputs if last[value] == number and value not in weights}
        made = {storage[value]: nbytes(value) for value in node.outputs if storage[value] not in live}
        spec = registry.find(node.op)
        on_top = spec is not None and spec.in_place and any(live[s] in made.values() for s in dying)
        most = max(most, sum(live.values()) + (0 if on_top else sum(made.values())))
        for gone in dying - {storage[value] for value in node.outputs}:
            live.pop(gone, None)
        live.update(made)
    return most


def _nbytes(graph: Graph, value: int) -> int:
    return graph.remembered(bytes_of_values)[value]


def _storages(graph: Graph) -> tuple[int | None, ...]:
    return tuple(value.storage for value in graph.values)

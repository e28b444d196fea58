"""Which operands of a call a program has touched so lately that they are still in the processor's caches."""

from __future__ import annotations

from collections.abc import Iterable

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.loops import Binding
from neaptide.cost.model import is_host_arithmetic
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node


class LatelyTouched:
    """Plays the calls of a graph in order and counts the bytes that they touch.

    Args:
        graph: the program.
        binding: values of symbolic dims.
        cache_bytes: an operand is still in the caches when at most so many bytes were touched since.

    Attributes:
        binding: values of symbolic dims of what is played next; those of the trips of a loop differ.
    """

    def __init__(self, graph: Graph, binding: Binding, cache_bytes: int) -> None:
        self._graph, self.binding, self._cache_bytes = graph, binding, cache_bytes
        self._touched_bytes = 0
        self._at: dict[int, int] = {}

    def slots(self, node: Node) -> tuple[int, ...]:
        """Positions among the node's inputs of what is still in the caches; then plays its call. O(size of the node)."""
        graph = self._graph
        if is_pure_view(graph, node) or is_host_arithmetic(graph, node):
            return ()
        storages = [graph.values[v].storage for v in node.inputs]
        oldest = self._touched_bytes - self._cache_bytes
        near = tuple(
            i for i, s in enumerate(storages) if s is not None and self._at.get(s, oldest - 1) >= oldest
        )
        touched = {s for v in (*node.inputs, *node.outputs) if (s := graph.values[v].storage) is not None}
        sizes = {s: graph.storages[s].nbytes.evaluate(self.binding) for s in touched}
        self._touched_bytes += sum(sizes.values())
        # What is larger than the caches pushes its own front out.
        self._at.update({s: self._touched_bytes for s, n in sizes.items() if n <= self._cache_bytes})
        return near

    def forget(self, values: Iterable[int]) -> None:
        """What is seen under these names from now on is other data."""
        for value in values:
            storage = self._graph.values[value].storage
            if storage is not None:
                self._at.pop(storage, None)

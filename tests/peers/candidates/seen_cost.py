"""A cost model whose numbers follow from calls alone, whatever the ids; one that looks at producers as well."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from neaptide.analysis.loops import NO_BODIES, Binding, Bodies
from neaptide.analysis.profile_bytes import loop_workspace_bytes
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node


@dataclass(frozen=True)
class SeenCost:
    """Seconds, workspace and true sizes by operation and shapes; where `is_measured`, by the producers of operands too."""

    is_measured: bool = False
    call_s: float = 0.0

    def seconds(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> float:
        return self._number(graph, node, "seconds") / 1000

    def workspace_bytes(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> int:
        if node.regions:
            return loop_workspace_bytes(graph, node, bodies=bodies)
        return self._number(graph, node, "workspace") % 3 * 16

    def under(self, _: Binding) -> SeenCost:
        return self

    def storage_bytes(self, graph: Graph, nodes: Iterable[Node] | None = None) -> Mapping[int, int]:
        return {
            storage: self._number(graph, node, "bytes") % 50
            for node in (graph.nodes if nodes is None else nodes)
            for storage in graph.created_storages(node)
            if self._number(graph, node, "is") % 2
        }

    def describe(self) -> str:
        return "by what is seen"

    def _number(self, graph: Graph, node: Node, what: str) -> int:
        text = f"{what} {self._call(graph, node)}"
        if self.is_measured:
            made = (graph.producer(value) for value in node.inputs)
            text += " ".join("-" if p is None else self._call(graph, graph.nodes[p]) for p in made)
        return zlib.crc32(text.encode()) % 1009

    def _call(self, graph: Graph, node: Node) -> str:
        values = (graph.values[v] for v in (*node.inputs, *node.outputs))
        return f"{node.op} {[(v.dtype, list(map(str, v.shape))) for v in values]}"

"""A cost model of numbers that a test gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from neaptide.analysis.loops import NO_BODIES, Binding, Bodies
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.planner.pricing import Pricing


@dataclass(frozen=True)
class GivenCost:
    """Seconds by node, workspace by node id, and sizes by storage id that replace the graph's."""

    node_seconds: Sequence[float]
    workspace: Mapping[int, int] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    is_measured: bool = False
    call_s: float = 0.0

    def seconds(self, _: Graph, node: Node, bodies: Bodies = NO_BODIES) -> float:
        return self.node_seconds[node.id]

    def workspace_bytes(self, _: Graph, node: Node, bodies: Bodies = NO_BODIES) -> int:
        return self.workspace.get(node.id, 0)

    def under(self, _: Binding) -> GivenCost:
        return self

    def storage_bytes(self, _: Graph, nodes: Iterable[Node] | None = None) -> Mapping[int, int]:
        assert nodes is None
        return self.sizes

    def describe(self) -> str:
        return "given"


def given_pricing(registry, seconds, **known):
    """A pricing of given numbers."""
    return Pricing(GivenCost(seconds, **known), registry)

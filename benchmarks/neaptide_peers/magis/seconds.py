"""Seconds as MAGIS's simulator counts them on an analytic device: the roofline of each operation, and nothing for parts.

Chen et al., MAGIS (ASPLOS 2024). An operation takes the longer of its arithmetic and its traffic, and 5 us. Cutting parts
out of a tensor, joining them and adding them up takes no time, and neither do slices, joins and indices in the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from neaptide.analysis.loops import NO_BODIES, Binding, Bodies
from neaptide.analysis.profile_bytes import loop_workspace_bytes
from neaptide.cost.model import loop_seconds
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import ADD_OP, COPY_OP, PUT_OP, Node
from neaptide.ir.registry import Call, OpRegistry

FLOPS_PER_S: Final = 35.6e12
BYTES_PER_S: Final = 936e9
CALL_S: Final = 5e-6
"""Of the RTX 3090 of the recorded steps."""
FREE_S: Final = 1e-11
FREE: Final = frozenset({ADD_OP, COPY_OP, PUT_OP, "recorded.slice", "recorded.concat", "recorded.index_out"})
"""Operations that take no time to speak of."""
LINK_BYTES_PER_S: Final = 12e9
"""Of a copy to the host or back."""


@dataclass(frozen=True, slots=True)
class RecordedCost:
    """A cost model for recorded steps. Nothing needs scratch.

    Attributes:
        registry: of the recorded step.
        binding: values of symbolic dims.
    """

    registry: OpRegistry
    binding: Binding = field(default_factory=dict)

    @property
    def is_measured(self) -> bool:
        """False."""
        return False

    @property
    def call_s(self) -> float:
        """Calls of bodies take no time."""
        return 0.0

    def seconds(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> float:
        """Seconds of one execution; of a loop, of all its trips."""
        if node.regions:
            return loop_seconds(graph, node, self.binding, self._seconds, bodies, call_s=self.call_s)
        return self._seconds(graph, node, self.binding)

    def workspace_bytes(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> int:
        """Nothing; of a loop what its body holds."""
        return loop_workspace_bytes(graph, node, self.binding, bodies=bodies) if node.regions else 0

    def under(self, sizes: Binding) -> RecordedCost:
        """The same with other values of dims."""
        return replace(self, binding=sizes)

    def storage_bytes(
        self,
        graph: Graph,  # noqa: ARG002 - the protocol's signature
        nodes: Iterable[Node] | None = None,  # noqa: ARG002 - likewise
    ) -> Mapping[int, int]:
        """Nothing: sizes are those of the graph."""
        return {}

    def describe(self) -> str:
        """The simulated device."""
        return "MAGIS's simulated RTX 3090"

    def _seconds(self, graph: Graph, node: Node, binding: Binding) -> float:
        if node.op in FREE:
            return FREE_S
        call, row = Call(graph, node), self.registry.require(node.op)
        flops = row.flops(call).evaluate(binding)
        return roofline_seconds(flops, row.bytes_moved(call).evaluate(binding))


def roofline_seconds(flops: float, moved_bytes: float) -> float:
    """Seconds of one operation."""
    return CALL_S + max(flops / FLOPS_PER_S, moved_bytes / BYTES_PER_S)

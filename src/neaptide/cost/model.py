"""What planners ask about cost: seconds and workspace of a node, and the sizes that storages really have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.loops import NO_BODIES, Binding, Bodies
from neaptide.analysis.profile_bytes import loop_workspace_bytes
from neaptide.cost import roofline
from neaptide.cost.devices import Device
from neaptide.cost.loops import known_in_loop, loop_seconds
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import Call, OpRegistry, Trait, tensor_traffic
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr

HOST_SCALAR_S: Final = 2e-7
"""Arithmetic on Python numbers: a few interpreter instructions."""


class CostModel(Protocol):
    """Time and scratch memory of the nodes of a graph.

    What is said of a node follows from its call alone; where it is measured, from the calls that make its operands
    as well.
    """

    @property
    def is_measured(self) -> bool:
        """Whether the numbers were taken on a real machine."""
        ...

    @property
    def call_s(self) -> float:
        """Seconds of a call that computes nothing, such as each call of the body of a loop."""
        ...

    def seconds(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> float:
        """Seconds of one execution; of a loop, of all its trips, whose order is that of `bodies`."""
        ...

    def workspace_bytes(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> int:
        """Most bytes allocated during one execution beyond the storages of its operands and results."""
        ...

    def under(self, sizes: Binding) -> CostModel:
        """The same for the body of a loop in a trip: dims have these values, and storages the sizes of the graph."""
        ...

    def storage_bytes(self, graph: Graph, nodes: Iterable[Node] | None = None) -> Mapping[int, int]:
        """Bytes, by storage id, of those storages whose real size is not what the graph says.

        Args:
            nodes: only of what these create; by default of all.
        """
        ...

    def describe(self) -> str:
        """One line for reports: where the numbers come from."""
        ...


@dataclass(frozen=True, slots=True)
class EstimatedCost:
    """Cost by the roofline and the formulas of the op table; nothing is run.

    An operation without a row is taken to move its operands and results once and to need no workspace.
    """

    device: Device
    registry: OpRegistry
    binding: Binding = field(default_factory=dict)

    @property
    def is_measured(self) -> bool:
        """False."""
        return False

    @property
    def call_s(self) -> float:
        """That of the device."""
        return self.device.host_call_s

    def seconds(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> float:
        """Seconds by the roofline: arithmetic or traffic, whichever takes longer, the call itself, and fresh memory."""
        if node.regions:
            return loop_seconds(graph, node, self.binding, self._seconds, bodies, call_s=self.call_s)
        return self._seconds(graph, node, self.binding)

    def workspace_bytes(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> int:
        """Workspace by the row's formula; a loop's is what its body holds at its peak."""
        if node.regions:
            known = known_in_loop(graph, node, self.binding, self._workspace_bytes)
            return loop_workspace_bytes(graph, node, self.binding, known, bodies)
        return self._workspace_bytes(graph, node, self.binding)

    def under(self, sizes: Binding) -> EstimatedCost:
        """The same with other values of dims."""
        return replace(self, binding=sizes)

    def storage_bytes(
        self,
        graph: Graph,  # noqa: ARG002 - the protocol's signature
        nodes: Iterable[Node] | None = None,  # noqa: ARG002 - likewise
    ) -> Mapping[int, int]:
        """Nothing: without running an operation, the graph is the best knowledge there is."""
        return {}

    def describe(self) -> str:
        """The device and where its numbers come from."""
        return f"estimated for {self.device.name} ({self.device.source})"

    def _seconds(self, graph: Graph, node: Node, binding: Binding) -> float:
        if is_host_arithmetic(graph, node):
            return HOST_SCALAR_S
        if is_pure_view(graph, node):
            return self.device.host_call_s
        work = node_work(graph, node, self.registry)
        made = [nbytes.evaluate(binding) for nbytes in work.made]
        return sum(map(self.device.fresh_seconds, made)) + roofline.seconds(
            self.device,
            flops=work.flops.evaluate(binding),
            bytes_moved=work.moved.evaluate(binding),
            dtype=work.dtype,
        )

    def workspace_size(self, graph: Graph, node: Node) -> SizeExpr:
        """Workspace of a node that is no loop, for all shapes."""
        row = self.registry.find(node.op)
        return SizeExpr.const(0) if row is None else row.workspace(Call(graph, node))

    def _workspace_bytes(self, graph: Graph, node: Node, binding: Binding) -> int:
        return self.workspace_size(graph, node).evaluate(binding)


@dataclass(frozen=True, slots=True)
class NodeWork:
    """What a node that runs on the device does there.

    Attributes:
        made: bytes of each storage that it creates.
    """

    flops: SizeExpr
    moved: SizeExpr
    made: tuple[SizeExpr, ...]
    dtype: str


def node_work(graph: Graph, node: Node, registry: OpRegistry) -> NodeWork:
    """The work of a node that is neither a view nor arithmetic of the host."""
    call, row = Call(graph, node), registry.find(node.op)
    # A row of a view moves nothing; a reshape that had to copy is no view.
    copies = row is None or row.is_a(Trait.VIEW)
    return NodeWork(
        flops=SizeExpr.const(0) if row is None else row.flops(call),
        moved=tensor_traffic(call) if row is None or copies else row.bytes_moved(call),
        made=tuple(graph.storages[s].nbytes for s in graph.created_storages(node)),
        dtype=_arithmetic_dtype(call),
    )


def is_host_arithmetic(graph: Graph, node: Node) -> bool:
    """Whether a node computes with Python numbers alone."""
    touched = (*node.inputs, *node.outputs)
    return bool(node.outputs) and all(graph.values[v].is_host_scalar for v in touched)


def _arithmetic_dtype(call: Call) -> str:
    """The dtype whose rate bounds a call: that of its first operand of floats, else of its first tensor."""
    tensors: list[Value] = [v for v in (*call.inputs(), *call.outputs()) if not v.is_host_scalar]
    return next((v.dtype for v in tensors if "float" in v.dtype), tensors[0].dtype if tensors else "float32")

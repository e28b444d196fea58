"""What planners ask about cost: seconds and workspace of a node, and the sizes that storages really have.

Where nothing is run, the roofline (Williams, Waterman and Patterson, CACM 2009) tells seconds: a kernel runs at the
arithmetic rate or at the memory bandwidth, whichever takes longer. Small kernels reach neither. MAGIS (ASPLOS 2024)
measured how splitting an operator loses time to kernels that no longer fill the machine, so both terms are divided by a
utilisation `u(work) = 1 / (1 + (half_work / work) ** fall)`, where `half_work` is the work that keeps half of the
machine busy. Without it, cutting an operator into ever smaller parts would look free.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Final, NamedTuple

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.loops import (
    NO_BODIES,
    NOTHING_IN_BODIES,
    Binding,
    Bodies,
    InBodies,
    body_schedule,
    trips,
)
from neaptide.analysis.profile_bytes import loop_workspace_bytes
from neaptide.cost.devices import Device
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Loop, Node
from neaptide.ir.registry import Call, OpRegistry, Trait, tensor_traffic
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr

HOST_SCALAR_S: Final = 2e-7
"""Arithmetic on Python numbers: a few interpreter instructions."""


class CostModel(ABC):
    """Time and scratch memory of the nodes of a graph, by the call of each alone.

    A model says what single nodes take, the same again; what loops take is put together here.
    `tests/cost/test_cost_model_conformance.py` holds each model to this.

    Attributes:
        binding: values of symbolic dims; in the body of a loop those of a trip.
        is_measured: whether the numbers were taken on a real machine.
    """

    binding: Binding
    is_measured: bool

    @property
    @abstractmethod
    def call_s(self) -> float:
        """Seconds of a call that computes nothing, such as each call of the body of a loop."""

    @abstractmethod
    def node_seconds(self, graph: Graph, node: Node, sizes: Binding) -> float:
        """Seconds of one execution of a node that is no loop."""

    @abstractmethod
    def node_workspace(self, graph: Graph, node: Node, sizes: Binding) -> int:
        """Most bytes that such a node allocates beyond the storages of its operands and results."""

    def real_sizes(
        self,
        graph: Graph,  # noqa: ARG002 - without running an operation, the graph is the best knowledge there is
        sizes: Binding,  # noqa: ARG002
        nodes: Iterable[Node] | None = None,  # noqa: ARG002
    ) -> Mapping[int, int]:
        """Bytes, by storage id, of those storages whose real size is not what the graph says."""
        return {}

    def seconds(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> float:
        """Seconds of one execution; of a loop, of all its trips, whose order is that of `bodies`."""
        if node.regions:
            return loop_seconds(graph, node, self.binding, self.node_seconds, bodies, call_s=self.call_s)
        return self.node_seconds(graph, node, self.binding)

    def workspace_bytes(self, graph: Graph, node: Node, bodies: Bodies = NO_BODIES) -> int:
        """Most bytes allocated during one execution; of a loop what its body holds at its peak."""
        if node.regions:
            known = self._known_in_loop(graph, node, self.binding)
            return loop_workspace_bytes(graph, node, self.binding, known, bodies)
        return self.node_workspace(graph, node, self.binding)

    def storage_bytes(self, graph: Graph, nodes: Iterable[Node] | None = None) -> Mapping[int, int]:
        """Bytes of storages whose real size is not what the graph says; only of what `nodes` create, by default of all."""
        return self.real_sizes(graph, self.binding, nodes)

    def under(self, sizes: Binding) -> CostModel:
        """The same for the body of a loop in a trip: dims have these values."""
        inside = copy.copy(self)
        object.__setattr__(inside, "binding", sizes)
        return inside

    def _known_in_loop(self, graph: Graph, node: Node, sizes: Binding) -> InBodies:
        """What is known of bytes in a loop's body and in the bodies inside it, of any trip the most, by path from the body."""
        found = NOTHING_IN_BODIES
        for loop in node.regions:
            body = loop.body
            for _, within in trips(graph, node, loop, sizes):
                scratch = {
                    part.id: nbytes
                    for part in body.nodes
                    if not part.regions and (nbytes := self.node_workspace(body, part, within))
                }
                found = found.most(InBodies.here(scratch, self.real_sizes(body, within)))
                for part in body.nodes:
                    if part.regions:
                        found = found.most(self._known_in_loop(body, part, within).around(part.id))
        return found


def loop_seconds(
    graph: Graph,
    node: Node,
    binding: Binding,
    inner: Callable[[Graph, Node, Binding], float],
    bodies: Bodies = NO_BODIES,
    *,
    call_s: float,
) -> float:
    """Seconds of all trips, one after another, repetitions in the body included."""
    total = 0.0
    for loop in node.regions:
        order = body_schedule(node, bodies)
        for count, sizes in trips(graph, node, loop, binding):
            total += count * calls_of_trip(loop) * call_s
            for step in order.node_steps():
                part = loop.body.nodes[step.target]
                total += count * (
                    loop_seconds(loop.body, part, sizes, inner, order.bodies, call_s=call_s)
                    if part.regions
                    else inner(loop.body, part, sizes)
                )
    return total


def calls_of_trip(loop: Loop) -> int:
    """One call of the body, and one for each part that it is handed: of an input, or of a result to fill."""
    return 1 + len(loop.slices) + sum(merge.how == "concat" for merge in loop.merges)


@dataclass(frozen=True, slots=True)
class EstimatedCost(CostModel):
    """Cost by the roofline and the formulas of the op table; nothing is run.

    An operation without a row is taken to move its operands and results once and to need no workspace.
    """

    device: Device
    registry: OpRegistry
    binding: Binding = field(default_factory=dict)

    is_measured = False

    @property
    def call_s(self) -> float:
        """That of the device."""
        return self.device.host_call_s

    def node_seconds(self, graph: Graph, node: Node, sizes: Binding) -> float:
        """Seconds by the roofline: arithmetic or traffic, whichever takes longer, the call itself, and fresh memory."""
        if is_host_arithmetic(graph, node):
            return HOST_SCALAR_S
        if is_pure_view(graph, node):
            return self.device.host_call_s
        work = node_work(graph, node, self.registry)
        made = [nbytes.evaluate(sizes) for nbytes in work.made]
        return sum(map(self.device.fresh_seconds, made)) + roofline_seconds(
            self.device,
            flops=work.flops.evaluate(sizes),
            bytes_moved=work.moved.evaluate(sizes),
            dtype=work.dtype,
        )

    def workspace_size(self, graph: Graph, node: Node) -> SizeExpr:
        """Workspace of a node that is no loop, for all shapes."""
        row = self.registry.find(node.op)
        return SizeExpr.const(0) if row is None else row.workspace(Call(graph, node))

    def node_workspace(self, graph: Graph, node: Node, sizes: Binding) -> int:
        """Workspace by the row's formula."""
        return self.workspace_size(graph, node).evaluate(sizes)


def roofline_seconds(device: Device, *, flops: float, bytes_moved: float, dtype: str) -> float:
    """Seconds of one call that so many floating-point operations (a multiply-add counts two) and bytes, read and written, take.

    Grows with both.
    """
    rate = device.rate_flops_per_s(dtype)
    half_flops = device.half_flops * (rate / device.rate_flops_per_s("float32"))
    bandwidth = device.main_space.bandwidth_bytes_per_s
    arithmetic_s = _seconds_at(flops, rate, half_flops, device.fall)
    memory_s = _seconds_at(bytes_moved, bandwidth, device.half_bytes, device.fall)
    return device.launch_s + max(arithmetic_s, memory_s)


def _seconds_at(work: float, rate: float, half_work: float, fall: float) -> float:
    """`work / (rate * utilisation(work))`, in the form that is monotone in floats too; 0 for no work."""
    # The second term is work that the machine could have done meanwhile, at its full rate.
    return (work + half_work**fall * work ** (1.0 - fall)) / rate if work > 0 else 0.0


@dataclass(frozen=True, slots=True)
class NodeWork:
    """What a node that runs on the device does there; `made` are the bytes of each storage that it creates."""

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


Sizes = tuple[tuple[str, int], ...]
"""A binding that can be a key."""


class KnownNodes(NamedTuple):
    """What is known of the nodes of a graph, or of a body under some sizes: zero for loops, which the order of bodies decides."""

    graph: Graph
    sizes: Sizes
    seconds: tuple[float, ...]
    workspace: tuple[int, ...]
    storages: Mapping[int, int]  # of another size than the graph says


@dataclass(frozen=True)
class KnownCost(CostModel):
    """The numbers of another cost model for one graph and for the bodies in it; it knows no other graph."""

    known: tuple[KnownNodes, ...]
    binding: Binding
    empty_call_s: float
    is_measured: bool

    def __reduce__(self) -> tuple[type[KnownCost], tuple[object, ...]]:
        """Graphs are looked up by their ids, which are other ones in another process."""
        return KnownCost, tuple(getattr(self, made.name) for made in fields(self))

    @property
    def call_s(self) -> float:
        """Seconds of a call that computes nothing."""
        return self.empty_call_s

    @cached_property
    def _by_graph(self) -> Mapping[tuple[int, Sizes], KnownNodes]:
        return {(id(nodes.graph), nodes.sizes): nodes for nodes in self.known}

    @staticmethod
    def of(cost: CostModel, graph: Graph, binding: Binding) -> KnownCost:
        """What a cost model says of a graph. O(nodes, those in bodies for each kind of trip)."""
        known = {(id(nodes.graph), nodes.sizes): nodes for nodes in _levels(cost, graph, binding)}
        return KnownCost(tuple(known.values()), dict(binding), cost.call_s, cost.is_measured)

    def node_seconds(self, graph: Graph, node: Node, sizes: Binding) -> float:
        """Seconds of one execution of a node that is no loop."""
        return self._of(graph, sizes).seconds[node.id]

    def node_workspace(self, graph: Graph, node: Node, sizes: Binding) -> int:
        """Most bytes that such a node allocates beyond the storages of its operands and results."""
        return self._of(graph, sizes).workspace[node.id]

    def real_sizes(
        self, graph: Graph, sizes: Binding, nodes: Iterable[Node] | None = None
    ) -> Mapping[int, int]:
        """Bytes, by storage id, of those storages of the graph whose real size is not what the graph says."""
        known = self._of(graph, sizes).storages
        if nodes is None:
            return known
        created = {storage for node in nodes for storage in graph.created_storages(node)}
        return {storage: nbytes for storage, nbytes in known.items() if storage in created}

    def _of(self, graph: Graph, sizes: Binding) -> KnownNodes:
        return self._by_graph[id(graph), _key(sizes)]


def _levels(cost: CostModel, graph: Graph, binding: Binding) -> Iterator[KnownNodes]:
    yield KnownNodes(
        graph,
        _key(binding),
        tuple(0.0 if node.regions else cost.seconds(graph, node) for node in graph.nodes),
        tuple(0 if node.regions else cost.workspace_bytes(graph, node) for node in graph.nodes),
        dict(cost.storage_bytes(graph)),
    )
    for node in graph.nodes:
        for loop in node.regions:
            for _, sizes in trips(graph, node, loop, binding):
                yield from _levels(cost.under(sizes), loop.body, sizes)


def _key(binding: Binding) -> Sizes:
    return tuple(sorted(binding.items()))

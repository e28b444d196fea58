"""A recorded step as a search sees it, by MAGIS's conventions: every value has bytes of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neaptide.cost.devices import Link
from neaptide.ir.axes import Along
from neaptide.ir.graph import Graph
from neaptide.ir.registry import Call
from neaptide_corpus.recorded_ops import UPDATE, moved_values
from neaptide_corpus.recorded_steps import RecordedStep
from neaptide_peers.magis.flat_step import FlatStep
from neaptide_peers.magis.offloads import Copying
from neaptide_peers.magis.seconds import CALL_S, FREE, FREE_S, LINK_BYTES_PER_S, roofline_seconds


@dataclass(frozen=True, slots=True)
class RecordedCounting:
    """What `footprint` says of parts, by arrays.

    Attributes:
        nbytes: by value.
        flops: by node.
        moved: by node, the values that are read or written, one entry for each pass.
        is_free: by node, whether it takes no time.
    """

    nbytes: tuple[int, ...]
    flops: tuple[int, ...]
    moved: tuple[tuple[int, ...], ...]
    is_free: tuple[bool, ...]

    @property
    def holds_pieces(self) -> bool:
        """True."""
        return True

    def is_copied(
        self,
        value: int,  # noqa: ARG002 - the protocol's signature
        along: Along,  # noqa: ARG002 - likewise
    ) -> bool:
        """Every slice is a copy."""
        return True

    def part_seconds(self, node: int, parts: int, divided: Mapping[int, int]) -> float:
        """The roofline of a part."""
        if self.is_free[node]:
            return FREE_S
        moved = sum(self.nbytes[v] // divided.get(v, 1) for v in self.moved[node])
        return roofline_seconds(self.flops[node] / parts, moved)

    def merge_seconds(
        self,
        parts: int,  # noqa: ARG002 - the protocol's signature
        sums: Sequence[int],  # noqa: ARG002 - likewise
        joined: Sequence[int],  # noqa: ARG002 - likewise
    ) -> float:
        """Merges take no time."""
        return 0.0


def recorded_flat_step(step: RecordedStep) -> FlatStep:
    """The arrays of a recorded step. O(size of the graph)."""
    graph = step.graph
    calls = [Call(graph, node) for node in graph.nodes]
    maker, users = [-1] * len(graph.values), [list[int]() for _ in graph.values]
    for node in graph.nodes:
        maker[node.outputs[0]] = node.id
        for value in node.inputs:
            users[value].append(node.id)
    nbytes = tuple(value.nbytes.evaluate() for value in graph.values)
    updates = {node.id: node.inputs[0] for node in graph.nodes if node.op == UPDATE}
    counting = RecordedCounting(
        nbytes,
        tuple(step.registry.require(c.node.op).flops(c).evaluate() for c in calls),
        tuple(map(moved_values, calls)),
        tuple(node.op in FREE for node in graph.nodes),
    )
    return FlatStep(
        inputs=graph.inputs,
        kept=frozenset(graph.outputs),
        persistent_bytes=0,
        nbytes=nbytes,
        tensor_of=tuple(range(len(graph.values))),
        operands=tuple(node.inputs for node in graph.nodes),
        made=tuple((node.outputs[0],) for node in graph.nodes),
        maker=tuple(maker),
        users=tuple(map(tuple, users)),
        before=_before(graph, maker, users, updates),
        workspace=(0,) * len(graph.nodes),
        again_until=_again_until(graph, users, updates),
        views=((),) * len(graph.nodes),
        counting=counting,
        copying=_copying(len(graph.values)),
    )


def _copying(tensors: int) -> Copying:
    """Anything may wait on the host, where there is room for all. One engine makes the copies."""
    out, back = (Link(*ends, LINK_BYTES_PER_S, CALL_S) for ends in (("device", "host"), ("host", "device")))
    return Copying(frozenset(range(tensors)), out, back, has_one_engine=True)


def _before(
    graph: Graph, maker: list[int], users: list[list[int]], updates: Mapping[int, int]
) -> tuple[tuple[int, ...], ...]:
    """By node, makers of its operands, and for an update all who read the weight."""
    found = []
    for node in graph.nodes:
        before = {maker[value] for value in node.inputs if maker[value] >= 0}
        if node.id in updates:
            before.update(user for user in users[updates[node.id]] if user != node.id)
        found.append(tuple(sorted(before)))
    return tuple(found)


def _again_until(graph: Graph, users: list[list[int]], updates: Mapping[int, int]) -> tuple[int, ...]:
    """An operand may have been updated after the last of its other readers."""
    overwritten: dict[int, int] = {}
    for update, value in updates.items():
        last = max((other for other in users[value] if other != update), default=-1)
        overwritten[value] = min(last + 1, overwritten.get(value, last + 1))
    never = len(graph.nodes)
    return tuple(
        0 if node.id in updates else min((overwritten.get(v, never) for v in node.inputs), default=never)
        for node in graph.nodes
    )

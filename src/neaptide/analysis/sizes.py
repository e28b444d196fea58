"""Symbolic sizes of a graph as numbers, under a binding of its dims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node


def evaluate_storage_bytes(
    graph: Graph, binding: Mapping[str, int] | None = None, overrides: Mapping[int, int] | None = None
) -> tuple[int, ...]:
    """Bytes of each storage; `overrides` where an audit found a real size other than the recorded one."""
    given = overrides or {}
    return tuple(
        given[storage.id] if storage.id in given else storage.nbytes.evaluate(binding)
        for storage in graph.storages
    )


def main_device(graph: Graph, storage_bytes: tuple[int, ...]) -> str:
    """The device whose storages have the most bytes in total; the first by name among equals."""
    totals: dict[str, int] = defaultdict(int)
    for storage in graph.storages:
        totals[storage.device] += storage_bytes[storage.id]
    return min(totals, key=lambda device: (-totals[device], device), default="cpu")


def usual_device(graph: Graph) -> str:
    """The device with the most bytes of those storages whose bytes do not vary."""
    fixed = (s.nbytes.evaluate({}) if s.nbytes.is_constant else 0 for s in graph.storages)
    return main_device(graph, tuple(fixed))


def node_device(graph: Graph, node: Node) -> str:
    """Where a node runs, so where its workspace is: the device of its first output, else of its first input."""
    for value in (*node.outputs, *node.inputs):
        storage = graph.values[value].storage
        if storage is not None:
            return graph.storages[storage].device
    return "cpu"


def on_device(graph: Graph, device: str, nbytes: Mapping[int, int]) -> tuple[int, ...]:
    """Bytes of each node that runs on a device, from those by node id; 0 for the others."""
    return tuple(
        nbytes[node.id] if node.id in nbytes and node_device(graph, node) == device else 0
        for node in graph.nodes
    )

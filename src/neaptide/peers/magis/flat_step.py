"""A recorded step as flat arrays, and what its operations take in parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.corpus.recorded_ops import UPDATE, moved_values
from neaptide.corpus.recorded_steps import RecordedStep
from neaptide.ir.registry import Call
from neaptide.peers.magis.seconds import FREE, FREE_S, roofline_seconds


@dataclass(frozen=True, slots=True)
class FlatStep:
    """A recorded step.

    Attributes:
        inputs: values that the step is called with.
        kept: values that stay to the end.
        nbytes: by value.
        operands: by node, values.
        made: by node, the value that it makes.
        maker: by value, its node; -1 for inputs.
        users: by value, nodes, ascending.
        flops: by node.
        moved: by node, the values that are read or written, one entry for each pass.
        is_free: by node, whether it takes no time.
        is_update: by node.
    """

    inputs: tuple[int, ...]
    kept: frozenset[int]
    nbytes: tuple[int, ...]
    operands: tuple[tuple[int, ...], ...]
    made: tuple[int, ...]
    maker: tuple[int, ...]
    users: tuple[tuple[int, ...], ...]
    flops: tuple[int, ...]
    moved: tuple[tuple[int, ...], ...]
    is_free: tuple[bool, ...]
    is_update: tuple[bool, ...]

    @staticmethod
    def of(step: RecordedStep) -> FlatStep:
        """The arrays of a step. O(nodes)."""
        graph = step.graph
        calls = [Call(graph, node) for node in graph.nodes]
        maker, users = [-1] * len(graph.values), [list[int]() for _ in graph.values]
        for node in graph.nodes:
            maker[node.outputs[0]] = node.id
            for value in node.inputs:
                users[value].append(node.id)
        return FlatStep(
            graph.inputs,
            frozenset(graph.outputs),
            tuple(value.nbytes.evaluate() for value in graph.values),
            tuple(node.inputs for node in graph.nodes),
            tuple(node.outputs[0] for node in graph.nodes),
            tuple(maker),
            tuple(map(tuple, users)),
            tuple(step.registry.require(c.node.op).flops(c).evaluate() for c in calls),
            tuple(map(moved_values, calls)),
            tuple(node.op in FREE for node in graph.nodes),
            tuple(node.op == UPDATE for node in graph.nodes),
        )

    def part_seconds(self, node: int, parts: int, divided: Mapping[int, int]) -> float:
        """Seconds of a node for one of so many parts.

        Args:
            node: which one; it runs along the axes of all regions that it is in.
            parts: of all these regions together.
            divided: by value, into how many parts it is cut; whole values are not in it.
        """
        if self.is_free[node]:
            return FREE_S
        moved = sum(self.nbytes[v] // divided.get(v, 1) for v in self.moved[node])
        return roofline_seconds(self.flops[node] / parts, moved)

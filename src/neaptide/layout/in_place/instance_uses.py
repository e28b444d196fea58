"""Which storage instance every name stands for at every step, and which steps touch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.analysis.liveness import Liveness
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class InstanceUses:
    """Names and steps by storage instance.

    Attributes:
        seen: by position, the instance of each value that the step needs or makes; host scalars have none.
        touched: by instance, positions of the steps that make, need, overwrite or show it, ascending.
        handed_back: instances that hold results of the program.
    """

    seen: tuple[Mapping[int, int], ...]
    touched: tuple[tuple[int, ...], ...]
    handed_back: frozenset[int]


def instance_uses(graph: Graph, liveness: Liveness) -> InstanceUses:
    """Follow the bindings of a schedule. O(total inputs and outputs of its steps)."""
    bindings = iter(liveness.bindings)
    current = {value: next(bindings).instance for value in graph.inputs}
    seen: list[dict[int, int]] = []
    touched: list[list[int]] = [[] for _ in liveness.instances]
    for position, step in enumerate(liveness.steps):
        node = graph.nodes[step.target]
        here = {value: current[value] for value in needed_inputs(graph, node)}
        for value in node.outputs:
            current[value] = here[value] = next(bindings).instance
        known = {value: instance for value, instance in here.items() if instance is not None}
        seen.append(known)
        for instance in dict.fromkeys(known.values()):
            touched[instance].append(position)
    kept = frozenset(i for value in graph.outputs if (i := current[value]) is not None)
    return InstanceUses(tuple(seen), tuple(map(tuple, touched)), kept)

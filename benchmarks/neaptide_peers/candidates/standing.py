"""A graph in the sequence that candidates are checked in: what every check reads, worked out once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.analysis.loops import NO_BODIES, Bodies
from neaptide.ir.dependencies import ordered_effects
from neaptide.ir.graph import Graph
from neaptide.planner.pricing import Pricing
from neaptide.schedule.evaluate import Evaluator

Ints: TypeAlias = NDArray[np.int64]


class Standing:
    """A graph, a legal sequence of it, and its bytes by position. O(size of the graph).

    Attributes:
        graph: before any change.
        pricing: of it and of what it is changed into.
        bodies: by loop, the order of its body; program order for those without one.
        problem: the graph as integers.
        evaluator: of the sequence; not to be changed.
        sequence: node ids in running order.
        runs: by node, the positions of its executions, ascending.
        traffic: by position, bytes allocated, bytes freed after it, and workspace: three rows.
        seconds: by position.
        users: by value, the nodes that name it as an input.
        exact_seconds: floats whose sum, rounded once, is that of `seconds`; few.
        inputs_on: by storage, the inputs of the graph that see it.
        outputs_on: likewise its outputs.
        chains: nodes of each random stream, process group and host conversation, in program order.
        has_repetitions: whether a node runs more than once.
        has_one_device: whether all storages are on one device.
    """

    def __init__(
        self,
        graph: Graph,
        pricing: Pricing,
        sequence: Sequence[int] | None = None,
        bodies: Bodies = NO_BODIES,
    ) -> None:
        self.graph, self.pricing, self.bodies = graph, pricing, bodies
        self.problem = problem = pricing.problem(graph, bodies)
        self.evaluator = Evaluator(problem, sequence)
        self.sequence = self.evaluator.sequence()
        places = self.evaluator.places
        self.runs = [tuple(places[e] for e in executions) for executions in self.evaluator.executions]
        self.has_repetitions = len(self.sequence) > problem.node_count
        self.traffic = self._traffic()
        seen: set[int] = set()
        seconds = []
        for node in self.sequence:
            seconds.append(problem.repeat_seconds[node] if node in seen else problem.seconds[node])
            seen.add(node)
        self.seconds = tuple(seconds)
        self.users = graph.consumers()
        self.exact_seconds = _exact_sum(seconds)
        self.inputs_on = self._on(graph.inputs)
        self.outputs_on = self._on(graph.outputs)
        chains: dict[str, list[int]] = defaultdict(list)
        for link in graph.nodes:
            for chain in ordered_effects(link):
                chains[chain].append(link.id)
        self.chains = dict(chains)
        self.has_one_device = len({storage.device for storage in graph.storages}) <= 1

    def _traffic(self) -> Ints:
        """Bytes by position, from the spans of the evaluator."""
        evaluator, problem = self.evaluator, self.problem
        traffic = np.zeros((3, len(self.sequence)), dtype=np.int64)
        places = evaluator.places
        for storage, spans in enumerate(evaluator.spans):
            for start, end in spans:
                traffic[0, places[start]] += problem.storage_bytes[storage]
                if end >= 0:
                    traffic[1, places[end]] += problem.storage_bytes[storage]
        traffic[2] = [problem.workspace[node] for node in self.sequence]
        return traffic

    def _on(self, values: Sequence[int]) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = defaultdict(list)
        for value in values:
            storage = self.graph.values[value].storage
            if storage is not None:
                found[storage].append(value)
        return {storage: tuple(on) for storage, on in found.items()}


def _exact_sum(numbers: Iterable[float]) -> tuple[float, ...]:
    """Floats that add up to what some floats do, to the last bit, and do not overlap (Shewchuk 1997, grow-expansion)."""
    parts: list[float] = []
    for number in numbers:
        kept, rest = [], number
        for part in parts:
            large, small = (rest, part) if abs(rest) >= abs(part) else (part, rest)
            rest = large + small
            if error := small - (rest - large):
                kept.append(error)
        parts = [*kept, rest]
    return tuple(parts)

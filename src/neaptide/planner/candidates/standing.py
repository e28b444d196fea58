"""A graph in the sequence that candidates are judged in: what every judgement reads, worked out once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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
        problem: the graph as integers.
        evaluator: of the sequence; not to be changed.
        sequence: node ids in running order.
        runs: by node, the positions of its executions, ascending.
        traffic: by position, bytes allocated, bytes freed behind it, and workspace: three rows.
        seconds: by position.
        users: by value, the nodes that name it as an input.
        inputs_on: by storage, the inputs of the graph that see it.
        chains: nodes of each random stream, process group and host conversation, in program order.
        has_one_device: whether all storages are on one device.
    """

    def __init__(self, graph: Graph, pricing: Pricing, sequence: Sequence[int] | None = None) -> None:
        self.graph, self.pricing = graph, pricing
        self.problem = problem = pricing.problem(graph)
        self.evaluator = Evaluator(problem, sequence)
        self.sequence = self.evaluator.sequence()
        places = self.evaluator.places
        self.runs = [tuple(places[e] for e in executions) for executions in self.evaluator.executions]
        self.traffic = self._traffic()
        seen: set[int] = set()
        seconds = []
        for node in self.sequence:
            seconds.append(problem.repeat_seconds[node] if node in seen else problem.seconds[node])
            seen.add(node)
        self.seconds = tuple(seconds)
        self.users = graph.consumers()
        self.inputs_on = self._inputs_on()
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

    def _inputs_on(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = defaultdict(list)
        for value in self.graph.inputs:
            storage = self.graph.values[value].storage
            if storage is not None:
                found[storage].append(value)
        return {storage: tuple(on) for storage, on in found.items()}

"""What the calls of a program compute, as numbers: equal numbers mean equal bits.

It is value numbering (Cocke and Schwartz, 1970) of storages at their versions, and of the ways to look at them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from neaptide.analysis.alias import is_pure_view
from neaptide.frontends.recording.recording import CheckpointRun
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry

Runs = Mapping[int, Sequence[CheckpointRun]]


class CallContents:
    """Numbers for the calls, storages and values of a graph. O(size of the graph).

    Random numbers of a run that draws as its first one are those of the first one, draw by draw. An operation without a row
    computes something new each time.

    Attributes:
        calls: by node, of what it computes.
        states: by storage and version, of the bytes.
        looks: by value, of how it shows its storage: shape, strides and the views on the way; of a host scalar, of the
            scalar itself.
        unlike: nodes that draw in a run that draws as its first one, for which that one has no equal draw.
    """

    def __init__(self, graph: Graph, runs: Runs, registry: OpRegistry) -> None:
        self.calls: list[int] = []
        self.states: dict[tuple[int, int], int] = {}
        self.looks: list[int] = [-1] * len(graph.values)
        self.unlike: set[int] = set()
        self._graph, self._runs, self._registry = graph, runs, registry
        self._numbers: dict[Any, int] = {}
        self._draws: dict[tuple[CheckpointRun, str], list[tuple[int, int]]] = defaultdict(list)
        for value in graph.inputs:
            storage = graph.values[value].storage
            if storage is None:
                self.looks[value] = self._number("scalar", value)
            else:
                self.looks[value] = self._geometry(value)
                self.states[storage, 0] = self._number("input", storage)
        for node in graph.nodes:
            self._add(node)

    def _number(self, *key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _geometry(self, value: int) -> int:
        """Arguments are compared as text here and below: 0, 0.0, -0.0 and False are equal as numbers."""
        shown = self._graph.values[value]
        return self._number("base", shown.dtype, repr((shown.shape, shown.strides, shown.offset)))

    def _add(self, node: Node) -> None:
        graph, values = self._graph, self._graph.values
        called = (node.op, repr((node.args, node.kwargs, node.results)))
        looks = tuple(self.looks[value] for value in node.inputs)
        taken = {access.storage: access.version for access in node.effects.reads}
        taken |= {access.storage: access.version - 1 for access in node.effects.writes}
        states = tuple(
            self.states[storage, taken[storage]] if storage in taken else None
            for storage in (values[value].storage for value in node.inputs)
        )
        devices = tuple(
            "" if storage is None else graph.storages[storage].device
            for storage in (values[value].storage for value in node.outputs)
        )
        is_known = (
            self._registry.find(node.op) is not None and not node.regions and node.effects.collective is None
        )
        draw = self._draw(node, self._number("draw", called, looks)) if is_known else node.id
        call = self._number("call", called, looks, states, devices, draw)
        self.calls.append(call)
        created = graph.created_storages(node)
        for place, storage in enumerate(created):
            self.states[storage, 0] = self._number("made", call, place)
        for place, access in enumerate(node.effects.writes):
            self.states[access.storage, access.version] = self._number("written", call, place)
        is_view = is_pure_view(graph, node)
        for place, value in enumerate(node.outputs):
            if values[value].storage is None:
                self.looks[value] = self._number("result", call, place)
            elif is_view:
                self.looks[value] = self._number("view", called, looks, place)
            else:
                self.looks[value] = self._geometry(value)

    def _draw(self, node: Node, form: int) -> int | None:
        """Which random numbers a node draws: the number of the node that draws them first; None for none."""
        stream = node.effects.rng
        if stream is None:
            return None
        found = node.id
        runs = self._runs.get(node.id, ())
        if runs and runs[0].draws_alike and runs[0].first is not None:
            before, position = self._draws[runs[0].first, stream], len(self._draws[runs[0], stream])
            if position < len(before) and before[position][0] == form:
                found = before[position][1]
            else:
                self.unlike.add(node.id)
        for run in runs:
            self._draws[run, stream].append((form, found))
        return found

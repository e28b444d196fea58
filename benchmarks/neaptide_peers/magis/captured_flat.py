"""A captured program as a search sees it: its storages, and what the planner says of bytes and seconds.

A part takes its share of the seconds of each operation, and what calls, small calls and sums take beyond, as in
`planner.variants.estimate`. Regions of the F-tree end within the forward as well, so results that are put together count too.
Slices are views, and a piece of a result is gone when it is merged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.analysis.alias import is_pure_view
from neaptide.ir.axes import Along
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.variants.estimate import PartCosts
from neaptide.schedule.problem import StepProblem
from neaptide_peers.magis.flat_step import FlatStep, View
from neaptide_peers.magis.offloads import Copying

_COPY_OF_SUM: Final = 2.0 / 3.0  # passes over a byte that is copied, of those over one that is added


@dataclass(frozen=True, slots=True)
class CapturedCounting:
    """How parts of a captured program are counted.

    Attributes:
        graph: the program.
        seconds: by node.
        lost: by node, of these those that the device is not busy.
        costs: of parts.
    """

    graph: Graph
    seconds: tuple[float, ...]
    lost: tuple[float, ...]
    costs: PartCosts

    @property
    def holds_pieces(self) -> bool:
        """False."""
        return False

    def is_copied(self, value: int, along: Along) -> bool:
        """A slice along an inner axis lies in pieces: the loop copies it."""
        return any(extent.evaluate() > 1 for extent in self.graph.values[value].shape[: along.dim])

    def part_seconds(
        self,
        node: int,
        parts: int,
        divided: Mapping[int, int],  # noqa: ARG002 - the protocol's signature
    ) -> float:
        """All parts together take the node's seconds, begin it so often, and lose more of the device's rate."""
        calls = (parts - 1) * self.costs.call_seconds
        slower = (math.pow(parts, self.costs.fall) - 1.0) * self.lost[node]
        return (self.seconds[node] + calls + slower) / parts

    def merge_seconds(self, parts: int, sums: Sequence[int], joined: Sequence[int]) -> float:
        """Each part adds its term to each sum: two reads and a write. Its pieces of all else are copied: a read and a write."""
        moved = parts * sum(sums) + _COPY_OF_SUM * sum(joined)
        calls = parts * (len(sums) + len(joined))
        return calls * self.costs.call_seconds + moved * self.costs.added_byte_seconds


def captured_flat_step(
    graph: Graph, problem: StepProblem, costs: PartCosts, host: HostSpace | None = None
) -> FlatStep:
    """The arrays of a captured program. O(size of the graph).

    Args:
        graph: static.
        problem: the same as integers.
        costs: of parts.
        host: where storages may wait; None where nothing is moved.
    """
    operands = [list[int]() for _ in graph.nodes]
    users = []
    for storage, roles in enumerate(problem.roles):
        users.append(tuple(sorted(node for node, role in roles.items() if not role.creates)))
        for node in users[-1]:
            operands[node].append(storage)
    views = made_views(graph)
    lost = costs.lost(np.array(problem.seconds), np.array(problem.is_contraction, dtype=np.bool_))
    return FlatStep(
        inputs=(),
        kept=frozenset(s for v in problem.outputs if (s := problem.value_storage[v]) >= 0),
        persistent_bytes=problem.persistent_bytes,
        nbytes=problem.storage_bytes,
        tensor_of=problem.value_storage,
        operands=tuple(map(tuple, operands)),
        made=problem.created,
        maker=problem.creator,
        users=tuple(users),
        before=problem.predecessors,
        workspace=problem.workspace,
        again_until=tuple(_again_until(graph, problem, views, node) for node in range(problem.node_count)),
        views=views,
        counting=CapturedCounting(graph, problem.seconds, tuple(map(float, lost)), costs),
        copying=None if host is None else _copying(problem, host),
    )


def _copying(problem: StepProblem, host: HostSpace) -> Copying:
    """What the planner may move as well. Each link has an engine of its own."""
    movable = frozenset(host.movable(problem))
    return Copying(
        movable, host.out, host.back, has_one_engine=False, nbytes=host.nbytes, borders=host.borders
    )


def made_views(graph: Graph) -> tuple[tuple[View, ...], ...]:
    """By node, the views of the storages that it makes. O(size of the graph)."""
    users = [list[int]() for _ in graph.values]
    maker: dict[int, int] = {}
    for node in graph.nodes:
        for value in needed_inputs(graph, node):
            users[value].append(node.id)
        maker.update(dict.fromkeys(graph.created_storages(node), node.id))
    found = [list[View]() for _ in graph.nodes]
    outputs = set(graph.outputs)
    for node in graph.nodes:
        if is_pure_view(graph, node):
            view = View(
                node.id,
                tuple(sorted({user for value in node.outputs for user in users[value]})),
                not outputs.isdisjoint(node.outputs),
            )
            shown = {graph.values[value].storage for value in node.outputs}
            for number in sorted({maker[s] for s in shown if s is not None and s in maker}):
                found[number].append(view)
    return tuple(map(tuple, found))


def _again_until(graph: Graph, problem: StepProblem, views: tuple[tuple[View, ...], ...], node: int) -> int:
    """The first node that a node may not run again before; 0 where it never may.

    What draws random numbers never runs again here, nor what makes something that is overwritten.
    """
    created = problem.created[node]
    chain = (node, *(view.node for view in views[node]))
    if (
        not any(problem.storage_bytes[s] for s in created)
        or any(problem.writers[s] for s in created)
        or any(problem.refusals[n] or graph.nodes[n].effects.rng is not None for n in chain)
        or any(problem.value_storage[v] < 0 for v in problem.results[node])
    ):
        return 0
    overwritten = [
        problem.writers[storage][version]
        for n in chain
        for storage, version in problem.reads[n]
        if storage not in created and len(problem.writers[storage]) > version
    ]
    return min(overwritten, default=problem.node_count)

"""Takes out of a program what checkpoints of the user's compute a second time, where it is what the first run computed.

Eager runs a checkpointed function again in the backward pass. What that run computes from the same bytes is there, or
the planner recomputes it. What it does besides stays where eager does it: a second update of running statistics, another
draw, and all that depends on them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from neaptide.analysis.alias import is_pure_view
from neaptide.errors import CaptureError
from neaptide.frontends.kernels.call_contents import CallContents, Runs
from neaptide.ir.edits.edit import Edited, GraphEdit
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr


@dataclass(frozen=True, slots=True)
class Undone:
    """A program without what was computed twice.

    Attributes:
        repeated: by node of the program before that is gone, the node that computes the same.
        stayed: nodes of recomputations, in the program before, that compute something else than the first run, or write
            to what was there before.
    """

    edited: Edited
    repeated: dict[int, int]
    stayed: tuple[int, ...]


def without_repetitions(graph: Graph, runs: Runs, observed: Collection[int]) -> Undone:
    """A program in which no recomputation computes what its first run computed. O(size of the graph x rounds).

    `observed` are storages that must stay.
    """
    found = _Repetitions(graph, runs, observed)
    found.settle()
    stayed = tuple(n for n in sorted(found.again - found.gone.keys()) if not found.is_view(graph.nodes[n]))
    for number in stayed:
        if graph.nodes[number].effects.rng is not None and runs[number][0].draws_alike:
            raise _drawn_again(graph.nodes[number])
    found.refuse_unfilled()
    edit = GraphEdit(graph)
    dead = found.dead()
    for number in (*found.gone, *dead):
        edit.remove(number)
    for number in found.gone:
        for value in graph.nodes[number].outputs:
            edit.replace_uses(value, found.stand_in(value))
    return Undone(edit.finish(), found.gone, tuple(n for n in stayed if n not in dead))


def _drawn_again(node: Node) -> CaptureError:
    return CaptureError(
        f"{node.op} draws random numbers in the recomputation of a checkpoint, from operands that changed meanwhile",
        where=node.source.location or None,
        why="the same numbers would have to be drawn for another operation than in the forward pass",
        next_step='checkpoints="undo" runs the call once, as if it were not checkpointed',
    )


_UNFILLED = frozenset(
    f"aten.{name}"
    for name in (
        *("empty.memory_format", "empty_strided.default", "empty_permuted.default"),
        *("empty_like.default", "new_empty.default", "new_empty_strided.default"),
    )
)


class _Repetitions:
    """Finds the nodes that can go, and the storages in whose place others are.

    Attributes:
        again: nodes of recomputations.
        merged: by storage of such a node, the storage that holds the same bytes from before on.
        gone: by node that can go, the one that computes the same.
    """

    def __init__(self, graph: Graph, runs: Runs, observed: Collection[int]) -> None:
        self._graph, self._registry = graph, registry()
        self.again = {n for n, around in runs.items() if any(run.first is not None for run in around)}
        self._contents = CallContents(graph, runs, self._registry)
        self._views = {node.id for node in graph.nodes if is_pure_view(graph, node)}
        self._last = {a.storage: a.version for node in graph.nodes for a in node.effects.writes}
        self._anew = {s for n in self.again for s in graph.created_storages(graph.nodes[n])}
        self.merged = self._candidates(set(observed))
        self.gone: dict[int, int] = {}
        self._shown: dict[tuple[int, int], int] = {}

    def is_view(self, node: Node) -> bool:
        return node.id in self._views

    def stand_in(self, value: int) -> int:
        """The value that shows what another one does, from before on."""
        return self._shown[self._key(value)]

    def dead(self) -> set[int]:
        """Nodes whose results nobody uses now: what only the backward asks for, which has that of the second run."""
        graph = self._graph
        used = set(map(self._now, graph.outputs))
        found = set()
        for node in reversed(graph.nodes):
            if node.id in self.gone:
                continue
            if node.effects.is_pure and node.outputs and used.isdisjoint(node.outputs):
                found.add(node.id)
                continue
            used.update(map(self._now, node.inputs))
        return found

    def _now(self, value: int) -> int:
        return self.stand_in(value) if self._graph.producer(value) in self.gone else value

    def settle(self) -> None:
        """Give up storages until what stays finds every storage as it needs it."""
        while self._gives_up_what_is_made() or self._gives_up_what_is_read():
            pass

    def refuse_unfilled(self) -> None:
        """Refuse a gradient that takes what an early stop left unwritten: eager computes with whatever bytes lie there."""
        graph = self._graph
        unfilled = {
            (storage, 0)
            for number in self.again - self.gone.keys()
            if graph.nodes[number].op in _UNFILLED
            for storage in graph.created_storages(graph.nodes[number])
            if graph.storages[storage].nbytes != SizeExpr.const(0)
        }
        for node in graph.nodes:
            written = {access.storage for access in node.effects.writes}
            for access in node.effects.reads:
                if (access.storage, access.version) in unfilled and access.storage not in written:
                    raise CaptureError(
                        f"{node.op} reads memory that the recomputation of a checkpoint stops in front of filling",
                        where=node.source.location or None,
                        why="the recomputation ends when the last tensor is there that the backward asks for, and this one "
                        "is saved before it is written; eager's gradient is made of whatever lies there",
                        next_step="call checkpoint with early_stop=False, or with use_reentrant=True",
                    )

    def _candidates(self, kept: set[int]) -> dict[int, int]:
        """Storages of recomputations that end with the bytes that another one has ended with before."""
        graph, states = self._graph, self._contents.states
        outputs = set(graph.output_storages())
        ended: dict[int, int] = {}
        found: dict[int, int] = {}
        for node in graph.nodes:
            for storage in graph.created_storages(node):
                home = ended.get(states[storage, self._last.get(storage, 0)])
                is_free = storage not in kept and (storage not in outputs or home not in outputs)
                if node.id in self.again and home is not None and is_free:
                    found[storage] = home
                elif storage not in self._last:
                    ended.setdefault(states[storage, 0], storage)
            for access in node.effects.writes:
                if self._last[access.storage] == access.version and access.storage not in found:
                    ended.setdefault(states[access.storage, access.version], access.storage)
        return found

    def _key(self, value: int) -> tuple[int, int]:
        storage = self._graph.values[value].storage
        home = -1 if storage is None else self.merged.get(storage, storage)
        return home, self._contents.looks[value]

    def _gives_up_what_is_made(self) -> bool:
        """Find the nodes that can go; what the others make or write is given up. Whether there was any."""
        graph, before = self._graph, len(self.merged)
        self.gone, self._shown = {}, {self._key(value): value for value in reversed(graph.inputs)}
        first: dict[tuple[int, ...], int] = {}
        for node in graph.nodes:
            key = (self._contents.calls[node.id], *(home for home, _ in map(self._key, node.outputs)))
            original = first.setdefault(key, node.id)
            if node.id in self.again:
                if self._can_go(node, is_new=original == node.id):
                    self.gone[node.id] = original
                    continue
                for storage in self._touched(node):
                    self.merged.pop(storage, None)
            for value in node.outputs:
                self._shown.setdefault(self._key(value), value)
        return len(self.merged) < before

    def _gives_up_what_is_read(self) -> bool:
        """Give up storages that a node which stays reads before their last write. Whether there was any."""
        states, before = self._contents.states, len(self.merged)
        for node in self._graph.nodes:
            for access in () if node.id in self.gone else node.effects.reads:
                ends_with = states[access.storage, self._last.get(access.storage, 0)]
                if states[access.storage, access.version] != ends_with:
                    self.merged.pop(access.storage, None)
        return len(self.merged) < before

    def _can_go(self, node: Node, *, is_new: bool) -> bool:
        if self._registry.find(node.op) is None or node.regions or node.effects.collective is not None:
            return False
        if node.id in self._contents.unlike or not all(self._key(v) in self._shown for v in node.outputs):
            return False
        touched = self._touched(node)
        if any(storage not in self.merged for storage in touched):
            return False
        # What would have to be recomputed for the result of the first run is there in the second.
        reads = (access.storage for access in node.effects.reads)
        if any(storage in self._anew and storage not in self.merged for storage in reads):
            return False
        return bool(touched) or self.is_view(node) or not is_new

    def _touched(self, node: Node) -> tuple[int, ...]:
        return (*self._graph.created_storages(node), *(access.storage for access in node.effects.writes))

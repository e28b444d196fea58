"""Graph: the program as data. Immutable; `ir.edits.edit` makes changed copies that share the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from neaptide.ir.nodes import Node
from neaptide.ir.values import Storage, Value
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.size_expr import SizeExpr

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of nodes `[start, end)` that no step leaves: forward and backward behind `torch.compile`, say.

    No node of it runs before all of the segment before it have run. A repetition may: what an earlier segment made is
    made again where it is needed.
    """

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A deep-learning program: SSA values over storages, in captured program order.

    The order of `nodes` is the order in which the framework ran them (the baseline schedule). It is one
    topological order; which others are legal is what `ir.dependencies` derives.

    Attributes:
        inputs: value ids that the caller owns (parameters, buffers, optimizer state, batch, scalars).
        outputs: value ids handed back; live after the last node.
        segments: a partition of the nodes; empty means one segment.
        dims: the named dimensions of its sizes with their ranges. Empty: the sizes are constant, or it is the body of
            a loop and uses the dims of the graph around it, or nothing is known of its dims but that they are 0 or more.
        relations: equalities between sizes that hold for every shape it is run on.
    """

    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    storages: tuple[Storage, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    segments: tuple[Segment, ...] = ()
    name: str = ""
    dims: tuple[Dim, ...] = ()
    relations: tuple[Relation, ...] = ()
    _producer: list[int | None] = field(init=False, repr=False, compare=False, hash=False)
    _created: dict[int, tuple[int, ...]] = field(
        init=False, repr=False, compare=False, hash=False, default_factory=dict
    )
    _facts: dict[Callable[[Graph], Any], Any] = field(
        init=False, repr=False, compare=False, hash=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        producer: list[int | None] = [None] * len(self.values)
        for node in self.nodes:
            for value in node.outputs:
                if 0 <= value < len(producer):  # what does not exist is reported by ir.verify
                    producer[value] = node.id
        object.__setattr__(self, "_producer", producer)

    def remembered(self, fact: Callable[[Graph], Fact]) -> Fact:
        """What a function makes of this graph, worked out once: a graph never changes.

        Args:
            fact: a function of a module, not a closure. All who ask share what it returns.
        """
        if fact not in self._facts:
            self._facts[fact] = fact(self)
        found: Fact = self._facts[fact]
        return found

    def producer(self, value: int) -> int | None:
        """Id of the node that makes a value; None for an input."""
        return self._producer[value]

    def consumers(self) -> list[list[int]]:
        """For each value the ids of the nodes that name it as an input, ascending, once each. O(size)."""
        users: list[list[int]] = [[] for _ in self.values]
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                users[value].append(node.id)
        return users

    def created_storages(self, node: Node) -> tuple[int, ...]:
        """Storages that a node brings into being: those of its outputs that no earlier value sees."""
        if 0 <= node.id < len(self.nodes) and self.nodes[node.id] is node:
            if (known := self._created.get(node.id)) is None:
                known = self._created[node.id] = self._find_created(node)
            return known
        return self._find_created(node)

    def _find_created(self, node: Node) -> tuple[int, ...]:
        inputs = {self.values[v].storage for v in node.inputs} | {a.storage for a in node.effects.writes}
        fresh: dict[int, None] = {}
        for value in node.outputs:
            storage = self.values[value].storage
            if storage is not None and storage not in inputs:
                fresh[storage] = None
        return tuple(fresh)

    def input_storages(self) -> tuple[int, ...]:
        """Storages that the caller owns, ascending."""
        return self.remembered(_input_storages)

    def output_storages(self) -> tuple[int, ...]:
        """Storages of the outputs, ascending; some may be inputs as well."""
        return tuple(sorted({s for v in self.outputs if (s := self.values[v].storage) is not None}))

    def total_bytes(self, storages: Iterable[int]) -> SizeExpr:
        """Sum of the sizes of some storages."""
        total = SizeExpr.const(0)
        for storage in storages:
            total = total + self.storages[storage].nbytes
        return total


def _input_storages(graph: Graph) -> tuple[int, ...]:
    return tuple(sorted({s for v in graph.inputs if (s := graph.values[v].storage) is not None}))

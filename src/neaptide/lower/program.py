"""Program: a schedule made concrete, as runnable source with a map from lines to nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule
from neaptide.lower.places import Place, ToldPlaces


@dataclass(frozen=True, slots=True)
class Watch:
    """Copy a value, under `name`, as soon as its storage has reached `version`; for verify runs only.

    Attributes:
        version: of its storage, not below `value.version`.
    """

    name: str
    value: int
    version: int


@dataclass(frozen=True, slots=True)
class Points:
    """Places between the operations of a program where storages may be evicted, or must be there again.

    Attributes:
        at: positions directly before which there is one; the number of nodes for the end.
        repeatable: nodes that may be run again at points.
        evictable: storages that may be dropped, stored or loaded at points.
        last_use: by storage, the position after which it is dropped; the number of nodes for what is handed back.
        told: by node, which of its results lie where `begin` says: what that returns then has a list `places` by value.
        told_again: the same of repetitions, whose functions take the places.
    """

    at: Collection[int]
    repeatable: Collection[int]
    evictable: Collection[int]
    last_use: Sequence[int]
    told: Mapping[int, ToldPlaces] = field(default_factory=dict)
    told_again: Mapping[int, ToldPlaces] = field(default_factory=dict)

    def held(self, graph: Graph) -> frozenset[int]:
        """Values that actions at points take, read or put back. O(size of the graph).

        These are all values on evictable storages and on those that repeatable nodes return, and what these nodes read.
        """
        nodes = [graph.nodes[node] for node in self.repeatable]
        storages = {graph.values[value].storage for node in nodes for value in node.outputs} - {None}
        storages.update(self.evictable)
        found = {value for node in nodes for value in (*node.outputs, *needed_inputs(graph, node))}
        return frozenset(found.union(value.id for value in graph.values if value.storage in storages))


@dataclass(frozen=True, slots=True)
class NodeFunction:
    """A function of a program that runs one node.

    Attributes:
        name: in the program's source; it returns the node's outputs as a tuple.
        arguments: values that it takes, in order; the `dims` come after them.
        places: outputs of the node, for each of which it takes a tensor to put it in after these, in order.
    """

    name: str
    arguments: tuple[int, ...]
    dims: tuple[str, ...] = ()
    places: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A straight-line program that runs a graph under a schedule.

    Attributes:
        schedule: in which order, with `FREE` steps.
        source: Python text defining `program(args)`: `args` is a list with one entry for each graph input, which the
            program empties; it returns the graph outputs as a tuple. A program with dims takes them by keyword.
        line_nodes: for each line of `source` (index 0 is line 1) the innermost node that it runs, or None.
        line_steps: for each line the position of its step among those that run nodes, or None.
        watches: values that the program copies; it then takes a second argument, a dict.
        places: further global names that the source uses: tensors in an arena, made by who runs it.
        dims: by symbolic dim of the graph that the program takes, the keyword for it.
        begin: with points, the global name of a function that who runs it puts there, called as `begin(held, sizes)`:
            `held` is a list by value with those that `Points.held` names, and `sizes` has the dims. What it returns
            has an attribute `due`, the position of the first point at which there is something to do, a method
            `act(position)`, and a dict `states` for those of random generators.
        again: by node that may run again at points, its function.
    """

    graph: Graph
    schedule: Schedule
    source: str
    line_nodes: tuple[Node | None, ...]
    line_steps: tuple[int | None, ...]
    names: Mapping[str, Any]
    watches: tuple[Watch, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    dims: Mapping[str, str] = field(default_factory=dict)
    begin: str = ""
    again: Mapping[int, NodeFunction] = field(default_factory=dict)

    def node_at(self, line: int) -> Node | None:
        """The innermost node that a line (from 1) runs; None for a line that runs none."""
        return self.line_nodes[line - 1] if 0 < line <= len(self.line_nodes) else None

"""Program: a schedule made concrete, as runnable source with a map from lines to nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.schedule import Schedule
from neaptide.lower.places import Place


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
class Program:
    """A straight-line program that runs a graph under a schedule.

    Attributes:
        source: Python text defining `program(args)`: `args` is a list with one entry for each graph input, which the
            program empties; it returns the graph outputs as a tuple. A program with dims takes them by keyword.
        line_nodes: for each line of `source` (index 0 is line 1) the node of `graph` that it belongs to, or None;
            a line in the body of a loop belongs to the loop.
        line_steps: for each line the position of its step among those that run nodes, or None.
        body_nodes: by line number, the node of a loop's body that the line runs.
        places: further global names that the source uses: tensors in an arena, made by who runs it.
        dims: by symbolic dim of the graph that the program takes, the keyword for it.
    """

    graph: Graph
    schedule: Schedule
    source: str
    line_nodes: tuple[int | None, ...]
    line_steps: tuple[int | None, ...]
    names: Mapping[str, Any]
    body_nodes: Mapping[int, Node] = field(default_factory=dict)
    watches: tuple[Watch, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    dims: Mapping[str, str] = field(default_factory=dict)

    def node_at(self, line: int) -> Node | None:
        """The innermost node that a line (from 1) runs; None for a line that runs none."""
        if line in self.body_nodes:
            return self.body_nodes[line]
        number = self.line_nodes[line - 1] if 0 < line <= len(self.line_nodes) else None
        return None if number is None else self.graph.nodes[number]

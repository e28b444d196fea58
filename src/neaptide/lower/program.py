"""Program: a schedule made concrete, as runnable source with a map from lines to nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Program:
    """A straight-line program that runs a graph under a schedule.

    Attributes:
        graph: what is computed.
        schedule: in which order, with `FREE` steps.
        source: Python text defining `program(args)`: `args` is a list with one entry for each graph input, which the
            program empties; it returns the graph outputs as a tuple.
        line_nodes: for each line of `source` (index 0 is line 1) the node it runs, or None.
        names: global names that the source uses (operations, dtypes, shape stand-ins).
    """

    graph: Graph
    schedule: Schedule
    source: str
    line_nodes: tuple[int | None, ...]
    names: Mapping[str, Any]

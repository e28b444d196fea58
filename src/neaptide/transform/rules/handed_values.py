"""Rewrites of regions that run in parts: how their settings name the values that are handed over, by the nodes that take them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from neaptide.errors import RewriteError
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.rewrite import Rewrite, Setting

At = TypeVar("At")

INPUTS = "inputs"
"""The setting: runs of (node, place, ...) for each value. A node is its position in the rewrite's nodes; place -1 is its first
input, -2 its second."""


@dataclass(frozen=True, slots=True)
class RegionRule:
    """A rule about regions, of which prices choose (`planner.variants`): it finds none by itself."""

    name: str
    summary: str
    keeps_bits: bool = False
    each_node: bool = False
    are_alternatives: bool = True

    def find(self, graph: Graph, registry: OpRegistry) -> Iterator[Rewrite]:
        """As `Rule.find`."""
        del graph, registry
        return iter(())


def region_rewrite(
    rule: str,
    graph: Graph,
    nodes: Collection[int],
    inputs: Mapping[int, tuple[int, ...]],
    **settings: Setting,
) -> Rewrite:
    """The rewrite that runs some nodes of a graph in parts.

    Args:
        inputs: by value that is handed to the region in parts, numbers that say where the axis lies in it; others are
            handed over whole.
    """
    members = tuple(sorted(nodes))
    places: dict[int, tuple[int, int]] = {}  # by operand, where it is taken first
    for position, number in enumerate(members):
        for slot, value in enumerate(graph.nodes[number].inputs):
            places.setdefault(value, (position, -slot - 1))
    runs = sorted((*places[value], *where) for value, where in inputs.items() if value in places)
    settings[INPUTS] = tuple(number for run in runs for number in run)
    return Rewrite(rule, members, tuple(sorted(settings.items())), keeps_bits=False)


def settings_of(rewrite: Rewrite, *names: str) -> dict[str, Setting]:
    """The settings of a rewrite that has these, in this order."""
    settings = dict(rewrite.settings)
    if tuple(settings) != names or len(set(rewrite.nodes)) < len(rewrite.nodes) or not rewrite.nodes:
        raise RewriteError(f"it must name nodes, each once, and the settings {', '.join(names)}")
    return settings


def number_of(settings: Mapping[str, Setting], name: str) -> int:
    """A setting that is a number."""
    found = settings[name]
    if type(found) is not int:
        raise RewriteError(f"its setting {name} is no number")
    return found


def seeds_of(graph: Graph, rewrite: Rewrite, length: int, where: Callable[..., At | None]) -> dict[int, At]:
    """By value that is handed over in parts, where the axis lies in it.

    Args:
        where: the place that the rest of a run says, in a value; None where there is none.
    """
    found = dict(rewrite.settings)[INPUTS]
    if not isinstance(found, tuple) or len(found) % length:
        raise RewriteError(f"its setting inputs is no list of runs of {length} numbers")
    seeds: dict[int, At] = {}
    for begin in range(0, len(found), length):
        position, place, *rest = found[begin : begin + length]
        if not 0 <= position < len(rewrite.nodes):
            raise RewriteError(f"it has no node {position}")
        node, slot = graph.nodes[rewrite.nodes[position]], -place - 1
        if not 0 <= slot < len(node.inputs):
            raise RewriteError(f"{node.op} has no place {place}", where=node.source.location or None)
        value = node.inputs[slot]
        at = where(graph.values[value], *rest)
        if at is None or seeds.setdefault(value, at) != at:
            raise RewriteError(
                f"%{graph.values[value].name} is handed over along two axes, or along one that it does not have"
            )
    return seeds

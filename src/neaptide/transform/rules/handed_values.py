"""How the settings of a rewrite name the values that are handed to its region, by the nodes that take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from neaptide.errors import RewriteError
from neaptide.ir.graph import Graph
from neaptide.transform.rewrite import Rewrite, Setting


def places_of(graph: Graph, members: Sequence[int]) -> dict[int, tuple[int, int]]:
    """By operand of some nodes the position of the first that takes it, and its place there: -1 for the first input."""
    places: dict[int, tuple[int, int]] = {}
    for position, number in enumerate(members):
        for slot, value in enumerate(graph.nodes[number].inputs):
            places.setdefault(value, (position, -slot - 1))
    return places


def operand_at(graph: Graph, rewrite: Rewrite, node: int, place: int) -> int:
    """The operand at a place of one of a rewrite's nodes.

    Raises:
        RewriteError: there is none.
    """
    if not 0 <= node < len(rewrite.nodes):
        raise RewriteError(f"it has no node {node}")
    found = graph.nodes[rewrite.nodes[node]]
    slot = -place - 1
    if not 0 <= slot < len(found.inputs):
        raise RewriteError(f"{found.op} has no place {place}", where=found.source.location or None)
    return found.inputs[slot]


def number_setting(settings: Mapping[str, Setting], name: str) -> int:
    """A setting that is a number.

    Raises:
        RewriteError: it is none.
    """
    found = settings[name]
    if type(found) is not int:
        raise RewriteError(f"its setting {name} is no number")
    return found


def runs_of(found: Setting, length: int) -> Iterator[tuple[int, ...]]:
    """A setting that is a list of runs of numbers, run by run.

    Raises:
        RewriteError: it is none.
    """
    if not isinstance(found, tuple) or len(found) % length:
        raise RewriteError(f"its setting inputs is no list of runs of {length} numbers")
    for at in range(0, len(found), length):
        yield found[at : at + length]

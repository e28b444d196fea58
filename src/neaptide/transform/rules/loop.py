"""A loop placed by hand: a region of the graph runs in parts along an axis, the last of them maybe shorter.

Fission of MAGIS (Chen et al., ASPLOS 2024), as a loop instead of an unrolled graph, for parts of any length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.transform.fission.loop import extract_loop
from neaptide.transform.fission.split import Split
from neaptide.transform.rewrite import Refusal, Rewrite, Setting

_NAMES = ("axes", "length", "parts", "sums")


@dataclass(frozen=True, slots=True)
class PlacedLoop:
    """Runs the nodes of a rewrite as one loop. `placed_loop` makes such rewrites; the rule finds none by itself.

    Settings: `length` of the axis and number of `parts`; `axes` as runs of (node, place, dim, outer) for each value that
    carries the axis, `sums` as pairs (node, output) for results that are added up. A node is its position in the rewrite's
    nodes; a place from 0 on is an output of it, -1 its first input, -2 its second.
    """

    name: str = "placed_loop"
    keeps_bits: bool = False
    summary: str = "a region runs in parts"

    def find(
        self, graph: Graph, registry: OpRegistry, near: Collection[int] | None = None
    ) -> Iterator[Rewrite | Refusal]:
        """Nothing: where a loop belongs is said by whoever places it."""
        del graph, registry, near
        return iter(())

    def apply(self, graph: Graph, registry: OpRegistry, rewrite: Rewrite) -> Edited:
        """As `Rule.apply`. O(size of the graph)."""
        settings = dict(rewrite.settings)
        if tuple(settings) != _NAMES or len(set(rewrite.nodes)) < len(rewrite.nodes) or not rewrite.nodes:
            raise RewriteError(f"it must name nodes, each once, and the settings {', '.join(_NAMES)}")
        length, parts = _number(settings, "length"), _number(settings, "parts")
        if not 2 <= parts <= length:
            raise RewriteError(f"an axis of {length} cannot be split into {parts} parts")
        axes: dict[int, Along] = {}
        for node, place, dim, outer in _runs(settings, "axes", 4):
            value = _value(graph, rewrite, node, place)
            name = graph.values[value].name
            if outer < 1:
                raise RewriteError(f"%{name} has no axis that lies in it {outer} times")
            if axes.setdefault(value, Along(dim, outer)) != Along(dim, outer):
                raise RewriteError(f"%{name} is said to carry the axis twice, in different dims")
        sums = frozenset(_value(graph, rewrite, node, place) for node, place in _runs(settings, "sums", 2))
        return extract_loop(graph, registry, rewrite.nodes, Split(length, -(-length // parts), axes, sums))


def placed_loop(
    graph: Graph,
    nodes: Collection[int],
    *,
    length: int,
    parts: int,
    axes: Mapping[int, Along],
    sums: Collection[int] = (),
) -> Rewrite:
    """The rewrite that runs some nodes of a graph in parts.

    Args:
        graph: in which the nodes are.
        nodes: the region.
        length: of the axis.
        parts: how many at most; each is as long as the first but for the last, which may be shorter.
        axes: by value of the region, or handed to it, that carries the axis, where; others are taken whole.
        sums: values of the region that are terms of a sum over the parts.
    """
    members = tuple(sorted(nodes))
    places: dict[int, tuple[int, int]] = {}
    for position, number in enumerate(members):
        node = graph.nodes[number]
        for slot, value in enumerate(node.inputs):
            places.setdefault(value, (position, -slot - 1))
        for slot, value in enumerate(node.outputs):
            places[value] = (position, slot)
    runs = [(*places[value], along.dim, along.outer) for value, along in axes.items() if value in places]
    pairs = [places[value] for value in sums if value in places]
    settings: tuple[tuple[str, Setting], ...] = (
        ("axes", tuple(number for run in sorted(runs) for number in run)),
        ("length", length),
        ("parts", parts),
        ("sums", tuple(number for pair in sorted(pairs) for number in pair)),
    )
    return Rewrite(PlacedLoop().name, members, settings, keeps_bits=False)


def _number(settings: Mapping[str, Setting], name: str) -> int:
    found = settings[name]
    if type(found) is not int:
        raise RewriteError(f"its setting {name} is no number")
    return found


def _runs(settings: Mapping[str, Setting], name: str, size: int) -> Iterator[tuple[int, ...]]:
    found = settings[name]
    if not isinstance(found, tuple) or len(found) % size:
        raise RewriteError(f"its setting {name} is no list of runs of {size} numbers")
    for at in range(0, len(found), size):
        yield found[at : at + size]


def _value(graph: Graph, rewrite: Rewrite, node: int, place: int) -> int:
    if not 0 <= node < len(rewrite.nodes):
        raise RewriteError(f"it has no node {node}")
    found = graph.nodes[rewrite.nodes[node]]
    values = found.outputs if place >= 0 else found.inputs
    slot = place if place >= 0 else -place - 1
    if slot >= len(values):
        raise RewriteError(f"{found.op} has no place {place}", where=found.source.location or None)
    return values[slot]

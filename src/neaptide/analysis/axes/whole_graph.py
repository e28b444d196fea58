"""All axes of a graph: dims of values that are one direction of the program, as the D-graph of MAGIS has them.

Chen et al., MAGIS (ASPLOS 2024), section 4.1, with rows of the op table in the place of dim links.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from neaptide.analysis.axes.follow import follow
from neaptide.analysis.axes.lines import Lines, regrouped
from neaptide.ir.axes import Along
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Kind

_MOST_LINES: Final = 6
_MOST_NAMES: Final = 4

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GraphAxis:
    """One axis of a graph.

    Attributes:
        length: the extent that most of its dims have.
        places: (value, dim) pairs, ascending.
        nodes: that it runs through, ascending; those that add up what its parts make are among them.
        origin: where it begins: in an input of the step if it lies in one, else in another input of the graph, else in
            the value that is made first.
    """

    length: int
    places: tuple[Place, ...]
    nodes: tuple[int, ...]
    origin: Place


def graph_axes(graph: Graph, registry: OpRegistry) -> tuple[GraphAxis, ...]:
    """Axes that more than one node has, those of most nodes first. O(size of the graph * dims of the batch).

    Two dims belong to one axis where the row of an operation says so, whether or not the operation may run in parts. A
    view that joins two dims begins an axis of its own, such as the tokens of a batch of sequences; axes that begin in the
    batch also run through it, with the others. The updates of an
    optimizer are left out: they only repeat the dims of the weights.
    """
    lines = Lines(graph, registry, 1)
    nodes = [node for node in graph.nodes if node.source.phase != "optimizer"]
    ties = [tied for node in nodes for tied in _ties(graph, lines, node)]
    # A view may join such a dim with others before anything else reads it.
    ties += [
        [place] for value in graph.inputs if _rank(graph, value) == 0 for place in _long_dims(graph, value)
    ]
    users: dict[int, list[int]] = {}
    for node in nodes:
        for value in dict.fromkeys((*node.inputs, *node.outputs)):
            users.setdefault(value, []).append(node.id)
    found = [_axis(graph, places, users) for places in _joined(ties)]
    found = _followed(graph, registry, found, [node.id for node in nodes])
    return tuple(
        sorted(
            (axis for axis in found if len(axis.nodes) > 1),
            key=lambda axis: (-len(axis.nodes), axis.origin),
        )
    )


def _followed(
    graph: Graph, registry: OpRegistry, found: list[GraphAxis], nodes: list[int]
) -> list[GraphAxis]:
    """Axes that begin in the batch are followed through views that join dims; one that is met on the way is the same."""
    begun = sorted((a for a in found if begins_in_the_batch(graph, a)), key=lambda a: a.origin)
    made: list[GraphAxis] = []
    for axis in begun:
        if any(axis.origin in known.places for known in made):
            continue
        value, dim = axis.origin
        length = graph.values[value].shape[dim].constant_value()
        way = follow(graph, registry, {value: Along(dim)}, length, nodes)
        places = {*axis.places, *((v, along.dim) for v, along in way.axes.items())}
        through = {*axis.nodes, *way.members, *(barrier.node for barrier in way.barriers)}
        made.append(GraphAxis(length, tuple(sorted(places)), tuple(sorted(through)), axis.origin))
    inside = {place for axis in made for place in axis.places}
    return [*made, *(a for a in found if a.origin not in inside)]


def begins_in_the_batch(graph: Graph, axis: GraphAxis) -> bool:
    """Whether it begins in what the step is called with."""
    return _rank(graph, axis.origin[0]) == 0


def operations_without_axes(graph: Graph, registry: OpRegistry) -> Counter[str]:
    """Operations of forward and backward that no row of axes is about, with how often they occur. O(nodes).

    Numbers on the host have no axes, and need no row.
    """
    found: Counter[str] = Counter()
    for node in graph.nodes:
        spec = registry.find(node.op)
        tensors = [v for v in (*node.inputs, *node.outputs) if graph.values[v].shape]
        if node.source.phase != "optimizer" and tensors and (spec is None or spec.axes is None):
            found[node.op] += 1
    return found


def _ties(graph: Graph, lines: Lines, node: Node) -> list[list[Place]]:
    row = lines.row(node)
    if row is None:
        return []
    if row.regroups:
        given, made = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
        ties = []
        for place in _long_dims(graph, given.id):
            extent = given.shape[place[1]]
            lies = regrouped(given, Along(place[1]), extent.constant_value(), made)
            if lies is not None and made.shape[lies.dim] == extent:
                ties.append([place, (made.id, lies.dim)])
        return ties
    return [
        [
            *((node.inputs[slot], dim) for slot, dim in axis.operands.items()),
            *((node.outputs[k], how) for k, how in axis.results.items() if isinstance(how, int)),
        ]
        for axis in lines.axes_of(node)
    ]


def _axis(graph: Graph, places: list[Place], users: dict[int, list[int]]) -> GraphAxis:
    extents = Counter(graph.values[value].shape[dim].constant_value() for value, dim in places)
    length = max(extents, key=lambda extent: (extents[extent], extent))
    nodes = sorted({node for value, _ in places for node in users.get(value, ())})
    origin = min(places, key=lambda place: (_rank(graph, place[0]), place))
    return GraphAxis(length, tuple(sorted(places)), tuple(nodes), origin)


def _rank(graph: Graph, value: int) -> int:
    """0 for an input of the step, 1 for any other input, 2 for what is made."""
    if graph.producer(value) is not None:
        return 2
    storage = graph.values[value].storage
    return 0 if storage is not None and graph.storages[storage].kind is Kind.INPUT else 1


def _long_dims(graph: Graph, value: int) -> list[Place]:
    extents = enumerate(graph.values[value].shape)
    return [(value, dim) for dim, extent in extents if extent.is_constant and extent.constant_value() > 1]


def _joined(ties: list[list[Place]]) -> list[list[Place]]:
    """Places that are tied to each other, directly or through others. O(places x log of them)."""
    group_of: dict[Place, list[Place]] = {}
    for tied in filter(None, ties):
        largest = max((group_of.setdefault(place, [place]) for place in tied), key=len)
        for place in tied:
            group = group_of[place]
            if group is not largest:
                largest += group
                group_of.update(dict.fromkeys(group, largest))
    return list({id(group): group for group in group_of.values()}.values())


def axes_in_words(graph: Graph, registry: OpRegistry) -> tuple[str, ...]:
    """One line for each of the axes that begin in the batch and of the longest others, and one for what has no row.

    Empty where sizes are symbolic: an axis is followed by its length. Costs what `graph_axes` costs.
    """
    if not all(extent.is_constant for value in graph.values for extent in value.shape):
        return ()
    found = [axis for axis in graph_axes(graph, registry) if axis.length > 1]
    found.sort(key=lambda axis: not begins_in_the_batch(graph, axis))  # stable: those of most nodes first
    lines = [_described(graph, axis) for axis in found[:_MOST_LINES]]
    if len(found) > _MOST_LINES:
        lines.append(f"{len(found) - _MOST_LINES} more")
    missing = operations_without_axes(graph, registry)
    if missing:
        names = [f"{op} ({count})" for op, count in missing.most_common(_MOST_NAMES)]
        more = len(missing) - len(names)
        rest = f" and {more} more" if more else ""
        lines.append(
            f"not split, for want of a row of axes: {missing.total()} of {len(graph.nodes)} operations,"
            f" {', '.join(names)}{rest}"
        )
    return tuple(lines)


def _described(graph: Graph, axis: GraphAxis) -> str:
    value, dim = axis.origin
    return f"axis of {axis.length:,} through {len(axis.nodes):,} operations, from {graph.values[value].name} dim {dim}"

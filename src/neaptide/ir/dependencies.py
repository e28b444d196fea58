"""Which node must run before which. The one place where order from data, effects and segments is derived."""

from __future__ import annotations

from collections import defaultdict

from neaptide.ir.graph import Graph, Segment
from neaptide.ir.nodes import Node


def ordered_effects(node: Node) -> tuple[str, ...]:
    """Names of the chains that a node is a link of: its random stream, its process group, the host."""
    chains = []
    if node.effects.rng is not None:
        chains.append(f"rng:{node.effects.rng}")
    if node.effects.collective is not None:
        chains.append(f"collective:{node.effects.collective}")
    if node.effects.host:
        chains.append("host")
    return tuple(chains)


def predecessors(graph: Graph) -> list[tuple[int, ...]]:
    """For each node the ids of the nodes that must run before it, ascending, without duplicates.

    Edges come from: the producer of each value it uses (an operand needed only for its shape gives none); the
    writer of each storage version it reads (read after write); all readers and the writer of the version that it
    overwrites (write after read, write after write); the previous node of its random stream, process group or
    host conversation; the nodes that the segment before its own ends with. O(size of the graph + readers of mutated
    storages + nodes that a segment begins with times those that the one before it ends with), once for a graph.
    """
    return list(graph.remembered(_predecessors))


def _predecessors(graph: Graph) -> tuple[tuple[int, ...], ...]:
    writer: dict[tuple[int, int], int] = {}
    for node in graph.nodes:
        for storage in graph.created_storages(node):
            writer[storage, 0] = node.id
        for access in node.effects.writes:
            writer[access.storage, access.version] = node.id
    readers: dict[tuple[int, int], list[int]] = defaultdict(list)
    for node in graph.nodes:
        for access in node.effects.reads:
            readers[access.storage, access.version].append(node.id)

    last_in_chain: dict[str, int] = {}
    result: list[set[int]] = []
    for node in graph.nodes:
        before: set[int] = set()
        for value in needed_inputs(graph, node):
            producer = graph.producer(value)
            if producer is not None:
                before.add(producer)
        for access in node.effects.reads:
            if (made_by := writer.get((access.storage, access.version))) is not None:
                before.add(made_by)
        for access in node.effects.writes:
            previous = (access.storage, access.version - 1)
            if (made_by := writer.get(previous)) is not None:
                before.add(made_by)
            before.update(readers[previous])
        for chain in ordered_effects(node):
            if chain in last_in_chain:
                before.add(last_in_chain[chain])
            last_in_chain[chain] = node.id
        before.discard(node.id)
        result.append(before)
    _keep_segments_apart(graph.segments, result)
    return tuple([tuple(sorted(before)) for before in result])


def _keep_segments_apart(segments: tuple[Segment, ...], result: list[set[int]]) -> None:
    """Have each segment wait for the one before it.

    Enough are edges from what nothing of its own segment waits for to what waits for nothing of its own: all others lie
    after the ones and in front of the others.
    """
    ends: list[int] = []
    for segment in segments:
        inside = range(segment.start, segment.end)
        if not inside:
            continue
        waited_for = {other for node in inside for other in result[node] if other >= segment.start}
        begins = [node for node in inside if all(other < segment.start for other in result[node])]
        for node in begins:
            result[node].update(ends)
        ends = [node for node in inside if node not in waited_for]


def needed_inputs(graph: Graph, node: Node) -> tuple[int, ...]:
    """Inputs that must exist when the node runs: all but those whose shape alone is used.

    A host scalar is always needed. A tensor is needed when the node reads or writes its storage, or hands it on
    as a view. Worked out once for each node of a graph.
    """
    if not (0 <= node.id < len(graph.nodes) and graph.nodes[node.id] is node):
        return _needed_inputs(graph, node)
    known = graph.remembered(_needed_by_node)
    if (found := known[node.id]) is None:
        found = known[node.id] = _needed_inputs(graph, node)
    return found


def _needed_by_node(graph: Graph) -> list[tuple[int, ...] | None]:
    """By node its needed inputs; None where nobody has asked."""
    return [None] * len(graph.nodes)


def _needed_inputs(graph: Graph, node: Node) -> tuple[int, ...]:
    values = graph.values
    touched: set[int | None] = {None}  # of a host scalar
    for access in (*node.effects.reads, *node.effects.writes):
        touched.add(access.storage)
    for value in node.outputs:
        touched.add(values[value].storage)
    return tuple([v for v in dict.fromkeys(node.inputs) if values[v].storage in touched])

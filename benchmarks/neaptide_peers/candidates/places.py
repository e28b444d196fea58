"""Where the nodes of a changed graph run in the old sequence."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide_peers.candidates.change import Change


class Places:
    """Moments of the executions of a changed graph, as integers that rise along the sequence.

    Nodes that keep their place run where they ran. The others run directly before the first node that needs them, or
    after the last that they need where none does; inside their segment, several of one place in program order.

    Attributes:
        gaps: of the nodes with a new place, the position in the old sequence that they run before, and the node;
            in running order.
    """

    def __init__(self, change: Change) -> None:
        self._change = change
        self._each = (
            len(change.edited.graph.nodes) + 1
        )  # moments of a position: placed nodes, then what ran there
        self._gap: dict[int, int] = {}
        self._waiting = frozenset(change.placed)
        self._find()
        self.gaps = tuple(sorted((gap, node) for node, gap in self._gap.items()))

    def moments(self, node: int) -> list[int]:
        """Of all executions of a node, ascending."""
        gap = self._gap.get(node)
        if gap is not None:
            return [gap * self._each + node]
        return [position * self._each + self._each - 1 for position in self._change.runs(node)]

    def first(self, node: int) -> int:
        """Moment of the first execution of a node."""
        gap = self._gap.get(node)
        return (
            gap * self._each + node if gap is not None else (self._change.runs(node)[0] + 1) * self._each - 1
        )

    def behind(self, position: int) -> int:
        """Moment of what ran at an old position."""
        return (position + 1) * self._each - 1

    def position(self, moment: int) -> tuple[int, int]:
        """The old position of a moment, and the node with a new place that runs before it; -1 for what ran there."""
        position, node = divmod(moment, self._each)
        return position, -1 if node == self._each - 1 else node

    def _find(self) -> None:
        change = self._change
        least: dict[int, int] = {}
        for node in change.placed:
            earlier = (
                least.get(other, 0) if other in self._waiting else change.runs(other)[0] + 1
                for other in self._neighbours(node, before=True)
            )
            least[node] = max(earlier, default=0)
        for node in reversed(change.placed):
            later = (
                self._gap.get(other, least[other]) if other in self._waiting else change.runs(other)[0]
                for other in self._neighbours(node, before=False)
            )
            gap = min(later, default=least[node])
            first, last = self._segment(node)
            self._gap[node] = min(max(gap, first), last)

    def _neighbours(self, node: int, *, before: bool) -> Iterator[int]:
        """Nodes that a node waits for, or that wait for it: for data, or for the bytes of what is overwritten."""
        change, graph = self._change, self._change.graph
        made = graph.nodes[node]
        if before:
            producers = (graph.producer(value) for value in change.operands[node])
            yield from (producer for producer in producers if producer is not None)
        else:
            for value in made.outputs:
                yield from change.users(value)
        writes = {access.storage for access in made.effects.writes}
        for storage in {access.storage for access in (*made.effects.reads, *made.effects.writes)}:
            if not change.has_writers(storage):
                continue
            for other in change.roles(storage):
                is_writer = storage in writes or any(
                    access.storage == storage for access in graph.nodes[other].effects.writes
                )
                if is_writer and (other < node if before else other > node):
                    yield other

    def _segment(self, node: int) -> tuple[int, int]:
        """First and last position of the segment of a node, by what keeps its place there."""
        whole = (0, len(self._change.standing.sequence))
        for segment in self._change.graph.segments:
            if segment.start <= node < segment.end:
                inside = [
                    self._change.runs(other)[0]
                    for other in range(segment.start, segment.end)
                    if other not in self._waiting
                ]
                return (min(inside), max(inside) + 1) if inside else whole
        return whole

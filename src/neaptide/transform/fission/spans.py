"""Stretches of a program that may run in parts: all of it, or what lies after a narrow place of its forward.

The forward of a network is narrow where few bytes cross from what has run to what has not, as between two blocks. What
follows such a place, up to the gradient that comes back to it, is the suffix of the step there. Its activations need to be
there for one part at a time. The whole step is the suffix after its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neaptide.analysis.alias import is_pure_view
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import FILLING_OPS

FORWARD, BACKWARD = "forward", "backward"
# A place is narrow where the bytes that cross rise by this share before they are as low again, on either side.
_RISE = 1.5
# Narrow places on each side of the widest that a stretch may begin or end at.
_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Span:
    """A suffix of the forward and the backward that belongs to it, up to `end` and without it.

    The forward in front hands the values `crossing` to it, those with the most bytes first; no inputs are among them.
    """

    start: int
    end: int
    crossing: tuple[int, ...]
    crossing_bytes: int


def suffixes(graph: Graph, binding: Mapping[str, int] | None = None) -> tuple[Span, ...]:
    """The spans after the narrow places of a forward, the longest first; empty without a backward. O(size)."""
    forward = [node.id for node in graph.nodes if node.source.phase == FORWARD]
    if not forward or not has_backward(graph):
        return ()
    crossing = _Crossing(graph, evaluate_storage_bytes(graph, binding))
    spans: dict[int, Span] = {}  # by end: of two that end alike, one holds hardly more than the other
    for position in crossing.valleys():
        start = position + 1
        end = _end_of_backward(graph, start)
        found = Span(start, end, crossing.values(position), crossing.nbytes[position])
        if end > start and (end not in spans or found.crossing_bytes < spans[end].crossing_bytes):
            spans[end] = found
    return tuple(spans.values())


def whole_step(graph: Graph) -> Span | None:
    """Forward and backward of a training step; all nodes of a graph that has no backward. None for an empty graph."""
    last = max(
        (node.id for node in graph.nodes if node.source.phase == BACKWARD), default=len(graph.nodes) - 1
    )
    return Span(0, last + 1, (), 0) if last > 0 else None


def has_backward(graph: Graph) -> bool:
    """Whether a graph is a training step."""
    return any(node.source.phase == BACKWARD for node in graph.nodes)


def stretches(graph: Graph, binding: Mapping[str, int] | None = None) -> tuple[Span, ...]:
    """What lies between two narrow places of a graph without a backward, around its widest place, the longest first.

    The first begins with the graph, the last ends with it. Empty where there is a backward. O(size).
    """
    forward = [node.id for node in graph.nodes if node.source.phase == FORWARD]
    if not forward or has_backward(graph):
        return ()
    crossing = _Crossing(graph, evaluate_storage_bytes(graph, binding))
    widest = max(range(crossing.end), key=lambda position: crossing.nbytes[position])
    valleys = crossing.valleys()
    begins = [place for place in valleys if place < widest][-_NEAREST:]
    ends = [*[place + 1 for place in valleys if place > widest][:_NEAREST], crossing.end]
    found = [Span(0, end, (), 0) for end in ends]
    found += [
        Span(begin + 1, end, crossing.values(begin), crossing.nbytes[begin])
        for begin in begins
        for end in ends
    ]
    return tuple(sorted(found, key=lambda span: (span.start - span.end, span.start)))


def _end_of_backward(graph: Graph, start: int) -> int:
    """After the last node of the backward that needs what the forward makes from `start` on."""
    made = {
        storage
        for node in graph.nodes[start:]
        if node.source.phase == FORWARD
        for storage in graph.created_storages(node)
    }
    for node in reversed(graph.nodes):
        if node.source.phase == BACKWARD and any(
            graph.values[v].storage in made for v in needed_inputs(graph, node)
        ):
            return _behind_additions(graph, node.id + 1)
    return start


def _behind_additions(graph: Graph, end: int) -> int:
    """After what adds up gradients right where they are made, as in the body of a loop, and views of them."""
    for node in graph.nodes[end:]:
        if node.op in FILLING_OPS:
            end = node.id + 1
        elif not is_pure_view(graph, node):
            break
    return end


class _Crossing:
    """By node of the forward, what is made up to it and needed by the forward after it."""

    def __init__(self, graph: Graph, sizes: tuple[int, ...]) -> None:
        self.graph, self.sizes = graph, sizes
        self.made: dict[int, int] = {}  # by storage
        self.value: dict[int, int] = {}  # by storage, the value of it that was needed last
        self.last: dict[int, int] = {}
        for node in graph.nodes:
            if node.source.phase != FORWARD:
                continue
            for number in needed_inputs(graph, node):
                storage = graph.values[number].storage
                if storage in self.made:
                    self.last[storage], self.value[storage] = node.id, number
            for storage in graph.created_storages(node):
                self.made[storage] = node.id
        self.end = max(node.id for node in graph.nodes if node.source.phase == FORWARD) + 1
        changes = [0] * (self.end + 1)
        for storage, last in self.last.items():
            changes[self.made[storage]] += sizes[storage]
            changes[last] -= sizes[storage]
        self.nbytes = []
        total = 0
        for change in changes[: self.end]:
            total += change
            self.nbytes.append(total)

    def valleys(self) -> list[int]:
        """Nodes after which the forward is narrow, ascending. O(nodes)."""
        found: list[int] = []
        lowest = -1
        highest = 0  # since the lowest
        is_falling = False
        for position, nbytes in enumerate(self.nbytes):
            highest = max(highest, nbytes)
            if lowest < 0 or not is_falling:
                if nbytes and nbytes * _RISE <= highest:
                    is_falling, lowest, highest = True, position, nbytes
            elif 0 < nbytes < self.nbytes[lowest]:
                lowest, highest = position, nbytes
            elif nbytes >= _RISE * self.nbytes[lowest]:
                found.append(lowest)
                is_falling, highest = False, nbytes
        return found

    def values(self, position: int) -> tuple[int, ...]:
        """Those that cross after a node, by falling bytes."""
        crossing = [s for s, last in self.last.items() if self.made[s] <= position < last]
        crossing.sort(key=lambda storage: (-self.sizes[storage], storage))
        return tuple(self.value[storage] for storage in crossing)

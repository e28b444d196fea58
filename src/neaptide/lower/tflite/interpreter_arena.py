"""The arena that TensorFlow Lite Micro will need for a file, worked out as its own planner does, without running it.

The interpreter gives every tensor without data in the file, and all scratch, a place in one arena. Offsets in the metadata
`OfflineMemoryAllocation` are taken as they are. All others are placed by size, the largest first, each in the lowest gap that
is large enough among those that share a scope with it (`greedy_memory_planner.cc`).
"""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

from neaptide.frontends.tflite.body_bytes import CallScopes, aligned
from neaptide.frontends.tflite.model import is_placed
from neaptide.frontends.tflite.to_graph import TfliteGraph

ANYWHERE: Final = -1
"""The offset of a tensor that the interpreter places."""
_NEVER: Final = (-1, -1)  # scopes of a tensor that nothing names


@dataclass(frozen=True, slots=True)
class Request:
    """A place that is asked for: bytes from the first to the last scope, both included, at an offset or anywhere."""

    nbytes: int
    first: int
    last: int
    offset: int = ANYWHERE


def arena_requests(
    source: TfliteGraph, order: Sequence[int], offsets: Sequence[int] | None = None
) -> list[Request]:
    """What the interpreter asks its planner for: tensors by index, then scratch in the order of the operators.

    Both subgraph by subgraph. The offset of a tensor is the one at its index in its own subgraph, whichever that is.
    """
    model, scopes = source.model, CallScopes(source.model, order)
    found = [
        Request(
            aligned(tensor.nbytes),
            *times.get(index, _NEVER),
            ANYWHERE if offsets is None else offsets[index],
        )
        for graph, times in zip(model.subgraphs, scopes.tensors, strict=True)
        for index, tensor in enumerate(graph.tensors)
        if is_placed(tensor)
    ]
    orders = [order, *(range(len(graph.operators)) for graph in model.subgraphs[1:])]
    return found + [
        Request(scratch[number], *times.get(number, _NEVER))
        for numbers, times, scratch in zip(orders, scopes.operators, source.scratch, strict=True)
        for number in numbers
        if number in scratch
    ]


def greedy_arena(requests: Sequence[Request]) -> int:
    """The arena in bytes. O(n^2)."""
    given = [request for request in requests if request.offset != ANYWHERE]
    free = [request for request in reversed(requests) if request.offset == ANYWHERE]
    there = sorted(((request.offset, request) for request in given), key=itemgetter(0))
    # The sort is stable: of requests of one size, the last is placed first.
    for request in sorted(free, key=lambda one: -one.nbytes):
        low = 0
        for offset, other in there:
            if other.first <= request.last and request.first <= other.last:
                if offset - low >= request.nbytes:
                    break
                low = max(low, offset + other.nbytes)
        insort_right(there, (low, request), key=itemgetter(0))
    return max((offset + request.nbytes for offset, request in there), default=0)

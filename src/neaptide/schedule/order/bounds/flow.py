"""Maximum flow and minimum cut in whole numbers of any size, and lowest downsets by minimum cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import gcd
from typing import Final

from neaptide.schedule.order.steps import Steps

INFINITE: Final = 1 << 62
"""More bytes than any problem holds; capacity of an arc that no cut may cross."""

_SMALL_ARCS: Final = 200  # below, calling SciPy takes longer than the flow
_MOST_SCALED: Final = 2**29  # SciPy's maximum flow is of 32-bit integers, and wraps around without a word
_SOURCE: Final = 0
_SINK: Final = 1


class FlowNetwork:
    """Maximum flow and minimum cut, integer capacities, flat lists.

    Dinic's algorithm, O(V^2 E), far less on ordering problems. Large networks start from a flow that SciPy finds on
    capacities rounded down to 32 bits: most often it is the maximum, and Dinic only has to see that.
    """

    def __init__(self, nodes: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(nodes)]  # arc numbers; arc ^ 1 is the reverse one
        self._head: list[int] = []
        self._room: list[int] = []
        self._between: dict[tuple[int, int], int] = {}

    def add_arc(self, tail: int, head: int, capacity: int) -> None:
        """An arc of a capacity; parallel ones add up."""
        known = self._between.get((tail, head))
        if known is not None:
            self._room[known] += capacity
            return
        arc = len(self._head)
        self._between[tail, head], self._between[head, tail] = arc, arc ^ 1
        self._arcs[tail].append(arc)
        self._arcs[head].append(arc ^ 1)
        self._head += (head, tail)
        self._room += (capacity, 0)

    def maximum_flow(self, source: int, sink: int) -> int:
        """Push what fits; afterwards the residual network knows the cuts. Call once."""
        total = self._start(source, sink) if len(self._head) > 2 * _SMALL_ARCS else 0
        while True:
            level = self._levels(source, sink)
            if level[sink] < 0:
                return total
            total += self._block(source, sink, level)

    def reaching(self, sink: int) -> list[bool]:
        """By node, whether it still reaches the sink; the others are the largest source side of a minimum cut."""
        seen = [False] * len(self._arcs)
        seen[sink] = True
        stack = [sink]
        while stack:
            for arc in self._arcs[stack.pop()]:
                tail = self._head[arc]
                if self._room[arc ^ 1] and not seen[tail]:
                    seen[tail] = True
                    stack.append(tail)
        return seen

    def reached(self, source: int) -> list[bool]:
        """By node, whether the source still reaches it: the smallest source side of a minimum cut."""
        return [level >= 0 for level in self._levels(source, -1)]

    def _start(self, source: int, sink: int) -> int:
        """Set a flow that is large already; returns its value. It fits, as every capacity was rounded down."""
        import numpy as np
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow

        limited = [room for room in self._room if 0 < room < INFINITE]
        if not limited:
            return 0
        unit = gcd(*limited)
        total = sum(limited)
        # The solver forms sums: the total beside one arc without limit has to fit.
        while total // unit >= _MOST_SCALED:
            unit *= 2
        infinite = total // unit + 1
        scaled = [infinite if room >= INFINITE else room // unit for room in self._room]
        heads = np.array(self._head, dtype=np.int32)
        tails = heads.reshape(-1, 2)[:, ::-1].reshape(-1)
        sorting = np.lexsort((heads, tails))
        starts = np.zeros(len(self._arcs) + 1, dtype=np.int32)
        np.cumsum(np.bincount(tails, minlength=len(self._arcs)), out=starts[1:])
        data = np.array(scaled, dtype=np.int32)[sorting]
        shape = (len(self._arcs), len(self._arcs))
        graph = csr_array((data, heads[sorting], starts), shape=shape)
        found = maximum_flow(graph, source, sink)
        flows = np.empty(len(scaled), dtype=np.int64)
        flows[sorting] = found.flow.data  # every arc has its reverse, so the structure is that of the network
        for arc, flow in enumerate(flows.tolist()):
            self._room[arc] -= flow * unit
        return int(found.flow_value) * unit

    def _levels(self, source: int, sink: int) -> list[int]:
        level = [-1] * len(self._arcs)
        level[source] = 0
        queue = deque((source,))
        while queue:
            node = queue.popleft()
            if node == sink:
                break
            for arc in self._arcs[node]:
                head = self._head[arc]
                if self._room[arc] and level[head] < 0:
                    level[head] = level[node] + 1
                    queue.append(head)
        return level

    def _block(self, source: int, sink: int, level: list[int]) -> int:
        """Saturate one layered network, path by path, without recursion."""
        arcs, heads, room = self._arcs, self._head, self._room
        upcoming = [0] * len(arcs)
        path: list[int] = []
        node, total = source, 0
        while True:
            if node == sink:
                pushed = min(room[arc] for arc in path)
                total += pushed
                cut = len(path)
                for position, arc in enumerate(path):
                    room[arc] -= pushed
                    room[arc ^ 1] += pushed
                    if not room[arc]:
                        cut = min(cut, position)
                node = heads[path[cut] ^ 1]
                del path[cut:]
                continue
            while upcoming[node] < len(arcs[node]):
                arc = arcs[node][upcoming[node]]
                if room[arc] and level[heads[arc]] == level[node] + 1:
                    path.append(arc)
                    node = heads[arc]
                    break
                upcoming[node] += 1
            else:
                if not path:
                    return total
                arc = path.pop()
                node = heads[arc ^ 1]
                upcoming[node] += 1


def lowest_downset(
    steps: Steps, *, include: Iterable[int] = (), exclude: Iterable[int] = (), largest: bool = True
) -> frozenset[int]:
    """The downset after which the fewest bytes are there, with some ops and without others. One minimum cut.

    It is the source side of the cut; of several, the largest or the smallest.
    """
    # What is in it or not for sure is merged into source and sink.
    inside = _closed(include, steps.predecessors)
    outside = _closed(exclude, steps.successors)
    free = [op for op in range(len(steps.delta)) if op not in inside and op not in outside]
    spot_of = dict.fromkeys(inside, _SOURCE) | dict.fromkeys(outside, _SINK)
    spot_of.update((op, 2 + index) for index, op in enumerate(free))
    coupled = [
        (nbytes, ops)
        for nbytes, candidates, _ in steps.couplings
        if nbytes and outside.isdisjoint(ops := [op for op in candidates if op not in inside]) and ops
    ]
    network = FlowNetwork(2 + len(free) + len(coupled))
    for op in free:
        change, spot = steps.delta[op], spot_of[op]
        if change < 0:
            network.add_arc(_SOURCE, spot, -change)
        elif change > 0:
            network.add_arc(spot, _SINK, change)
        for before in steps.predecessors[op]:
            if before not in inside:
                network.add_arc(spot, spot_of[before], INFINITE)
    for point, (nbytes, ops) in enumerate(coupled, start=2 + len(free)):
        network.add_arc(_SOURCE, point, nbytes)
        for op in ops:
            network.add_arc(point, spot_of[op], INFINITE)
    network.maximum_flow(_SOURCE, _SINK)
    if largest:
        out = network.reaching(_SINK)
        return frozenset(inside.union(op for op in free if not out[spot_of[op]]))
    reached = network.reached(_SOURCE)
    return frozenset(inside.union(op for op in free if reached[spot_of[op]]))


def _closed(ops: Iterable[int], before: Sequence[Iterable[int]]) -> set[int]:
    """Ops and all that must come before them."""
    found = set(ops)
    stack = list(found)
    while stack:
        fresh = [other for other in before[stack.pop()] if other not in found]
        found.update(fresh)
        stack += fresh
    return found

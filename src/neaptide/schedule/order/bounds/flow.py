"""Maximum flow and minimum cut in whole numbers of any size."""

from __future__ import annotations

from collections import deque
from math import gcd
from typing import Final

INFINITE: Final = 1 << 62
"""More bytes than any problem holds; capacity of an arc that no cut may cross."""

_SMALL_ARCS: Final = 200  # below, calling SciPy takes longer than the flow
_MOST_SCALED: Final = 2**29  # SciPy's maximum flow is of 32-bit integers, and wraps around without a word


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

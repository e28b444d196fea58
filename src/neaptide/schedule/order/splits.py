"""Cuts of a problem that lose nothing: lowest downsets by minimum cut, articulation ops, certified splits.

A downset is *superset-minimal* if no larger one holds fewer bytes, *subset-minimal* if no smaller one does. Bytes of
downsets are submodular, so an order can be led through a superset-minimal set without raising its first part, and
through a subset-minimal one without raising its second part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate

from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage
from neaptide.schedule.order.steps import Steps, to_steps

INFINITE = 1 << 62
"""More bytes than any problem holds; capacity of an arc that no cut may cross."""


class FlowNetwork:
    """Maximum flow and minimum cut (Dinic), integer capacities, flat lists. O(V^2 E), far less on ordering problems."""

    def __init__(self, nodes: int) -> None:
        self._arcs: list[list[int]] = [[] for _ in range(nodes)]  # arc numbers; arc ^ 1 is the reverse one
        self._head: list[int] = []
        self._room: list[int] = []

    def add_arc(self, tail: int, head: int, capacity: int) -> None:
        """An arc of a capacity; parallel ones are allowed."""
        self._arcs[tail].append(len(self._head))
        self._head.append(head)
        self._room.append(capacity)
        self._arcs[head].append(len(self._head))
        self._head.append(tail)
        self._room.append(0)

    def maximum_flow(self, source: int, sink: int) -> int:
        """Push what fits; afterwards the residual network knows the cuts."""
        total = 0
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
                for place, arc in enumerate(path):
                    room[arc] -= pushed
                    room[arc ^ 1] += pushed
                    if not room[arc]:
                        cut = min(cut, place)
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
    delta: Sequence[int],
    predecessors: Sequence[Iterable[int]],
    couplings: Iterable[tuple[int, Iterable[int]]],
    *,
    include: Iterable[int] = (),
    exclude: Iterable[int] = (),
    largest: bool = True,
) -> set[int]:
    """The downset after which the fewest bytes are there. One minimum cut.

    Args:
        delta: by item, what it adds for good.
        predecessors: by item.
        couplings: bytes, and the items all of which must have run to free them.
        include: items that must be in it (their ancestors follow).
        exclude: items that must not be in it (nor their descendants).
        largest: of several, the largest instead of the smallest.
    """
    coupled = [(nbytes, tuple(items)) for nbytes, items in couplings]
    count = len(delta)
    source, sink = count + len(coupled), count + len(coupled) + 1
    network = FlowNetwork(sink + 1)
    for item, change in enumerate(delta):
        if change < 0:
            network.add_arc(source, item, -change)
        elif change > 0:
            network.add_arc(item, sink, change)
        for before in predecessors[item]:
            network.add_arc(item, before, INFINITE)
    for index, (nbytes, items) in enumerate(coupled):
        network.add_arc(source, count + index, nbytes)
        for item in items:
            network.add_arc(count + index, item, INFINITE)
    for item in include:
        network.add_arc(source, item, INFINITE)
    for item in exclude:
        network.add_arc(item, sink, INFINITE)
    network.maximum_flow(source, sink)
    if largest:
        out = network.reaching(sink)
        return {item for item in range(count) if not out[item]}
    inside = network.reached(source)
    return {item for item in range(count) if inside[item]}


def superset_minimal(problem: OrderProblem, op: int, steps: Steps | None = None) -> frozenset[int]:
    """The downset with the fewest bytes among those in which an op has run: superset-minimal. One minimum cut."""
    return _lowest(steps or to_steps(problem), include=(op,), exclude=())


def subset_minimal(problem: OrderProblem, op: int, steps: Steps | None = None) -> frozenset[int]:
    """The downset with the fewest bytes among those in which an op has not run: subset-minimal. One minimum cut."""
    return _lowest(steps or to_steps(problem), include=(), exclude=(op,))


def _lowest(steps: Steps, include: tuple[int, ...], exclude: tuple[int, ...]) -> frozenset[int]:
    couplings = [(coupling.nbytes, coupling.ops) for coupling in steps.couplings if not coupling.is_pin]
    return frozenset(
        lowest_downset(steps.delta, steps.predecessors, couplings, include=include, exclude=exclude)
    )


def articulation_ops(problem: OrderProblem) -> tuple[int, ...]:
    """Ops that every order runs at the same place: all others come before or after them. O(size), ascending.

    When list order comes to such an op it is the only one that is ready, and so it is from the end backwards. All
    orders pass through the two downsets on either side.
    """
    count = problem.op_count
    alone = [0] * (count + 1)  # differences: at each place, how many ops are ready, forwards and backwards
    for op in range(count):
        before, after = problem.predecessors[op], problem.successors[op]
        alone[before[-1] + 1 if before else 0] += 1
        alone[op + 1] -= 1
        alone[op] += 1
        alone[after[0] if after else count] -= 1
    return tuple(op for op, ready in enumerate(accumulate(alone[:count])) if ready == 2)


def restrict(
    problem: OrderProblem, ran: frozenset[int], until: frozenset[int]
) -> tuple[OrderProblem, list[int]]:
    """The problem of getting from one downset to a larger one, and the original index of each of its ops.

    Bytes that are there all the time stay counted, so peaks compare with those of the whole. O(size).
    """
    ops = sorted(until - ran)
    place = {op: index for index, op in enumerate(ops)}
    storages: list[OrderStorage] = []
    renumbered: dict[int, int] = {}
    from_before: set[int] = set()
    for index, storage in enumerate(problem.storages):
        accessors = problem.accessors[index]
        here = any(op in place for op in accessors)
        kept = storage.resident or storage.output
        alive = problem.from_start[index] or bool(accessors and accessors[0] in ran)
        over = not kept and all(op in ran for op in accessors)
        if over or not (here or alive):
            continue
        renumbered[index] = len(storages)
        outlives = kept or any(op not in until for op in accessors)
        resident = storage.resident or (alive and outlives)
        storages.append(OrderStorage(storage.name, storage.nbytes, resident, outlives))
        if alive and not resident:
            from_before.add(index)
    records: list[OrderOp] = []
    for op in ops:
        record = problem.ops[op]
        first = tuple(s for s in record.writes if s in from_before and s not in record.reads)
        records.append(
            OrderOp(
                record.name,
                tuple(renumbered[s] for s in (*record.reads, *first)),
                tuple(renumbered[s] for s in record.writes),
                record.workspace,
                tuple((renumbered[w], renumbered[r]) for w, r in record.in_place),
                tuple(place[b] for b in problem.predecessors[op] if b in place),
            )
        )
    return OrderProblem(tuple(storages), tuple(records), problem.name), ops


def certified_splits(problem: OrderProblem, order: Sequence[int], bound: int) -> list[frozenset[int]]:
    """Prefixes of an order at which the problem falls apart without loss, given a lower bound of its peak.

    A prefix qualifies if it is superset-minimal and the order behind it never exceeds the bound: then the best peak
    is the larger of the best peak up to the prefix and what comes behind it. Only valleys of the order are tried.
    One minimum cut each; the caller limits their number by passing an order with few valleys below the bound.
    Problems with an `in_place` whose operand has several last readers have no certified splits here.

    Args:
        problem: what is ordered.
        order: a legal order.
        bound: no order of the problem has a lower peak.
    """
    steps = to_steps(problem)
    if any(coupling.is_pin for coupling in steps.couplings):
        return []
    levels, hills = play(steps, order)
    found: list[frozenset[int]] = []
    low = None
    for position in range(len(order) - 1, 0, -1):
        if hills[position] > bound:
            break
        if low is not None and levels[position] > low:
            continue  # something behind it is lower, so it is not superset-minimal
        low = levels[position]
        prefix = frozenset(order[:position])
        if superset_minimal_of(steps, prefix) == prefix:
            found.append(prefix)
    return found[::-1]


def superset_minimal_of(steps: Steps, downset: frozenset[int]) -> frozenset[int]:
    """The largest of the lowest downsets that contain the given one. One minimum cut."""
    return _lowest(steps, include=tuple(downset), exclude=())


def play(steps: Steps, order: Sequence[int]) -> tuple[list[int], list[int]]:
    """Bytes before each op of an order, with those at the end, and while each runs."""
    waiting = [len(coupling.ops) for coupling in steps.couplings]
    mine: dict[int, list[int]] = {}
    for index, coupling in enumerate(steps.couplings):
        for op in coupling.ops:
            mine.setdefault(op, []).append(index)
    level = steps.start_bytes
    levels, hills = [level], []
    for op in order:
        hills.append(level + steps.rise[op])
        level += steps.delta[op]
        for index in mine.get(op, ()):
            waiting[index] -= 1
            if not waiting[index]:
                level -= steps.couplings[index].nbytes
        levels.append(level)
    return levels, hills

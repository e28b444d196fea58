"""Series-parallel graphs: recognised, and ordered in polynomial time where branches share nothing but their two ends.

With a buffer per edge branches share nothing but their ends, and the two-sided merge is exact (Kayaaslan et al.,
"Scheduling series-parallel task graphs to minimize peak memory", 2018). With one tensor read by several branches the
problem is strongly NP-complete (Jin et al., arXiv 2312.13526): `regions.reduce` is exponential in the out-degree only.
"""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.segments import Segment, canonical, merge_independent
from neaptide.schedule.order.steps import Steps
from neaptide_peers.structures.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Composition:
    """A series-parallel problem put together from its ops.

    Attributes:
        segments: canonical. If no storage is shared by branches, their order dominates every other one; else it is a
            legal order.
        degree: most ops that wait for one op, dependencies transitively reduced.
    """

    segments: tuple[Segment, ...]
    degree: int


def compose(problem: OrderProblem, steps: Steps) -> Composition:
    """Put a problem together in series and in parallel. O(n log n) merges of segment lists.

    The dependencies, transitively reduced, must form a two-terminal series-parallel graph; several first or last ops
    are joined to a common start or end. Edges are merged and ops swallowed until one edge is left (Valdes, Tarjan,
    Lawler 1982); each edge carries the segments of what runs inside it.

    Args:
        problem: for the names of its ops.
        steps: of the problem.

    Raises:
        Refusal: names an op at which branches meet that do not start together.
    """
    if not problem.op_count:
        return Composition((), 0)
    edges = _Edges(steps)
    edges.contract()
    left = edges.live()
    if len(left) > 1:
        raise Refusal(_why_not(problem, edges, left))
    return Composition(tuple(edges.inside[left[0]]), edges.degree)


class _Edges:
    """Edges between ops, from a common start (`count`) to a common end (`count + 1`), each with what runs inside it."""

    def __init__(self, steps: Steps) -> None:
        count = len(steps.rise)
        self._steps = steps
        self.tails: list[int] = []
        self.heads: list[int] = []
        self.inside: list[list[Segment]] = []
        self.incoming: list[dict[int, None]] = [{} for _ in range(count + 2)]
        self.outgoing: list[dict[int, None]] = [{} for _ in range(count + 2)]
        self._between: dict[tuple[int, int], list[int]] = {}
        for op, before in enumerate(steps.predecessors):
            for other in sorted(before) or (count,):
                self._add(other, op)
        for op in range(count):
            if not self.outgoing[op]:
                self._add(op, count + 1)
        self.degree = max(map(len, self.outgoing[:count]))
        self._bundles: list[tuple[int, int]] = []  # no two edges of the input have the same ends
        self._passing = [op for op in range(count) if self._is_passed(op)]

    def live(self) -> list[int]:
        """Edges that are left."""
        return [edge for numbers in self._between.values() for edge in numbers]

    def contract(self) -> None:
        """Merge parallel edges and swallow ops with one edge on either side until neither is left."""
        while self._bundles or self._passing:
            if self._bundles:
                self._join_parallel(self._between[self._bundles.pop()])
            else:
                op = self._passing.pop()
                if self._is_passed(op):
                    self._join_series(op)

    def _add(self, tail: int, head: int) -> None:
        number = len(self.tails)
        self.tails.append(tail)
        self.heads.append(head)
        self.inside.append([])
        self.outgoing[tail][number] = None
        self.incoming[head][number] = None
        self._between[tail, head] = [number]

    def _is_passed(self, op: int) -> bool:
        return len(self.incoming[op]) == len(self.outgoing[op]) == 1

    def _join_parallel(self, numbers: list[int]) -> None:
        if len(numbers) < 2:
            return
        keep, *others = numbers
        self.inside[keep] = merge_independent([self.inside[number] for number in numbers])
        for number in others:
            del self.outgoing[self.tails[number]][number], self.incoming[self.heads[number]][number]
        numbers[1:] = []
        self._passing += [op for op in (self.tails[keep], self.heads[keep]) if self._is_passed(op)]

    def _join_series(self, op: int) -> None:
        """The op and what runs in its two edges become the inside of one."""
        (first,), (second,) = self.incoming[op], self.outgoing[op]
        step = Segment(self._steps.rise[op], self._steps.delta[op], op)
        self.inside[first] = canonical([*self.inside[first], step, *self.inside[second]])
        tail, head = self.tails[first], self.heads[second]
        self._between[tail, op].remove(first)
        self._between[op, head].remove(second)
        del self.incoming[head][second], self.incoming[op][first], self.outgoing[op][second]
        self.heads[first] = head
        self.incoming[head][first] = None
        bundle = self._between.setdefault((tail, head), [])
        bundle.append(first)
        if len(bundle) > 1:
            self._bundles.append((tail, head))


def _why_not(problem: OrderProblem, edges: _Edges, left: list[int]) -> str:
    """One sentence about the first op, in list order, at which what is left cannot be contracted."""
    count = problem.op_count
    meeting = min(edges.heads[edge] for edge in left if len(edges.incoming[edges.heads[edge]]) > 1)
    tails = sorted(edges.tails[edge] for edge in edges.incoming[meeting])
    starts = [problem.ops[tail].name if tail < count else "the start" for tail in tails[:2]]
    place = f"op {problem.ops[meeting].name}" if meeting < count else "the end"
    return f"the branches that meet at {place} start at different ops: {starts[0]} and {starts[1]}"

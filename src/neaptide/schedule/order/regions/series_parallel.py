"""Series-parallel graphs: recognised, ordered in polynomial time with a buffer per edge, and with shared tensors.

With a buffer per edge branches share nothing but their two ends, and the two-sided merge is exact (Kayaaslan et al.,
"Scheduling series-parallel task graphs to minimize peak memory", 2018). With one tensor read by several branches the
problem is strongly NP-complete (Jin et al., arXiv 2312.13526): exponential in the out-degree only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.schedule.order.bounds.lower import per_op_bound
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.merge import merge_independent
from neaptide.schedule.order.regions.reduce import REGION_STATES, ReductionStats, reduce
from neaptide.schedule.order.regions.segments import Segment, canonical, flatten, peak_rise
from neaptide.schedule.order.steps import to_steps


@dataclass(frozen=True, slots=True)
class BufferEdge:
    """A buffer from one op to another in the edge-buffer model."""

    tail: int
    head: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class BufferOrder:
    """A best order in the edge-buffer model.

    Attributes:
        order: ops.
        peak_bytes: of that order, and of no order less.
        segments: canonical; the order dominates every other one.
    """

    order: tuple[int, ...]
    peak_bytes: int
    segments: tuple[Segment, ...]


def order_edge_buffers(
    count: int, edges: Sequence[BufferEdge], workspace: Sequence[int]
) -> BufferOrder | None:
    """Best order of a two-terminal series-parallel multigraph with a buffer per edge; None if it is not one.

    While an op runs, the buffers on all its edges are there. Edges are merged and ops swallowed until one edge is
    left; each edge carries the segments of what runs inside it. O(n log n) merges of segment lists.

    Args:
        count: ops, 0 to `count - 1`; one has no incoming and one no outgoing edge.
        edges: parallel ones are allowed.
        workspace: by op.
    """
    if count == 1 and not edges:
        only = Segment(workspace[0], 0, 0)
        return BufferOrder((0,), workspace[0], (only,))
    incoming: list[dict[int, None]] = [{} for _ in range(count)]
    outgoing: list[dict[int, None]] = [{} for _ in range(count)]
    tails, heads, inside = [], [], []
    starts, ends = [], []  # by edge, bytes before and after what runs in it
    between: dict[tuple[int, int], list[int]] = {}
    for number, edge in enumerate(edges):
        tails.append(edge.tail)
        heads.append(edge.head)
        inside.append(list[Segment]())
        starts.append(edge.nbytes)
        ends.append(edge.nbytes)
        incoming[edge.head][number] = None
        outgoing[edge.tail][number] = None
        between.setdefault((edge.tail, edge.head), []).append(number)
    sources = [op for op in range(count) if not incoming[op]]
    sinks = [op for op in range(count) if not outgoing[op]]
    if len(sources) != 1 or len(sinks) != 1:
        return None
    bundles = [key for key, numbers in between.items() if len(numbers) > 1]
    passing = [op for op in range(count) if len(incoming[op]) == len(outgoing[op]) == 1]
    left = len(edges)
    while bundles or passing:
        if bundles:
            # Parallel: one edge for the bundle, its insides merged.
            numbers = between[bundles.pop()]
            if len(numbers) < 2:
                continue
            keep, *others = numbers
            inside[keep] = merge_independent([inside[number] for number in numbers])
            starts[keep] = sum(starts[number] for number in numbers)
            ends[keep] = sum(ends[number] for number in numbers)
            for number in others:
                del outgoing[tails[number]][number], incoming[heads[number]][number]
            left -= len(others)
            numbers[1:] = []
            passing += [
                op for op in (tails[keep], heads[keep]) if len(incoming[op]) == len(outgoing[op]) == 1
            ]
            continue
        op = passing.pop()
        if len(incoming[op]) != 1 or len(outgoing[op]) != 1:
            continue
        # Series: the op and what runs in its two edges become the inside of one.
        (first,), (second,) = incoming[op], outgoing[op]
        step = Segment(starts[second] + workspace[op], starts[second] - ends[first], op)
        inside[first] = canonical([*inside[first], step, *inside[second]])
        ends[first] = ends[second]
        head = heads[second]
        between[tails[first], op].remove(first)
        between[op, head].remove(second)
        del incoming[head][second], incoming[op][first], outgoing[op][second]
        heads[first] = head
        incoming[head][first] = None
        bundle = between.setdefault((tails[first], head), [])
        bundle.append(first)
        if len(bundle) > 1:
            bundles.append((tails[first], head))
        left -= 1
    if left != 1:
        return None
    (number,) = outgoing[sources[0]]
    source, sink = sources[0], sinks[0]
    first_step = Segment(starts[number] + workspace[source], starts[number], source)
    last_step = Segment(workspace[sink], -ends[number], sink)
    segments = tuple(canonical([first_step, *inside[number], last_step]))
    order = tuple(op for segment in segments for op in flatten(segment.ops))
    return BufferOrder(order, peak_rise(segments), segments)


def is_series_parallel(problem: OrderProblem) -> bool:
    """Whether the dependencies of a problem, transitively reduced, form a two-terminal series-parallel graph.

    Several first or last ops are joined to a common start or end. O(n log n); Valdes, Tarjan, Lawler (1982).
    """
    count = problem.op_count
    if not count:
        return True
    before = to_steps(problem).predecessors
    has_after = {other for earlier in before for other in earlier}
    edges = [BufferEdge(other, op, 0) for op, earlier in enumerate(before) for other in earlier]
    edges += [BufferEdge(count, op, 0) for op, earlier in enumerate(before) if not earlier]
    edges += [BufferEdge(op, count + 1, 0) for op in range(count) if op not in has_after]
    return order_edge_buffers(count + 2, edges, [0] * (count + 2)) is not None


@dataclass(frozen=True, slots=True)
class SharedOrder:
    """An order of a problem whose tensors are shared.

    Attributes:
        order: ops; the best order if the outcome says so, else a legal one.
        peak_bytes: of that order.
        stats: what the reduction did.
    """

    order: tuple[int, ...]
    peak_bytes: int
    stats: ReductionStats


def order_shared(
    problem: OrderProblem, limits: Limits | None = None, *, region_states: int = REGION_STATES
) -> Outcome[SharedOrder]:
    """Order a problem by exact reduction alone: complete on series-parallel graphs and trees of small out-degree.

    Proved if one chain is left. Else the list order of what is left, with a bound and the reason why the first region
    stays; the number of downsets is 2^O(d log d) in the out-degree d (Jin et al.).

    Args:
        problem: any problem.
        limits: time, and work in downsets.
        region_states: most downsets of one region.
    """
    guard = LimitGuard(limits or Limits())
    reduced = reduce(problem, guard.limits, region_states=region_states)
    listed = range(reduced.problem.op_count)
    peak = evaluate_order(reduced.problem, listed).peak_bytes
    bound = peak if reduced.is_solved else per_op_bound(reduced.problem)
    skipped = reduced.stats.skipped
    detail = ""
    if skipped and not reduced.is_solved:
        detail = f"a region of {len(skipped[0].ops)} ops stays: {skipped[0].reason}"
    value = SharedOrder(reduced.expand(listed), peak, reduced.stats)
    outcome = guard.finish(value, complete=reduced.is_solved, best=peak, bound=bound, detail=detail)
    return replace(outcome, work=reduced.stats.states)

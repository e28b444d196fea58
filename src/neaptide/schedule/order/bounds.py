"""Lower bounds of the peak over all orders: per op, by one minimum cut per op, and over certified sub-problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.bitset_lattice import Lattice, closures, mask_of
from neaptide.schedule.order.downsets import DownsetSearch, SearchEnd
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import is_created_by, shared_bytes, takeovers, touched
from neaptide.schedule.order.windows import window_problem

_INFINITE: Final = 2**31 - 1  # SciPy's maximum flow is of 32-bit integers, and wraps around without a word


@dataclass(frozen=True, slots=True)
class CutBound:
    """A bound of the peak and how it came about.

    Attributes:
        nbytes: no order has a lower peak.
        op: the op whose hill it is; None when it comes from no op.
        cuts: minimum cuts computed.
        complete: no further cut can raise it; False when a limit stopped the work.
    """

    nbytes: int
    op: int | None
    cuts: int
    complete: bool


def op_bounds(problem: OrderProblem) -> tuple[int, ...]:
    """For each op what must be there while it runs, whatever the order. O(accesses).

    All that it touches, its workspace, what is resident, and outputs that are there from the start, less the most
    that in-place takeovers may save.
    """
    always = sum(
        storage.nbytes
        for index, storage in enumerate(problem.storages)
        if storage.resident or (storage.output and problem.from_start[index])
    )
    bounds = []
    for index, op in enumerate(problem.ops):
        own = sum(
            problem.storages[s].nbytes
            for s in touched(op)
            if not problem.storages[s].resident and not (problem.storages[s].output and problem.from_start[s])
        )
        bounds.append(always + own + op.workspace - shared_bytes(takeovers(problem, index)))
    return tuple(bounds)


def per_op_bound(problem: OrderProblem) -> int:
    """The largest of `op_bounds`, or what is there at rest. O(accesses)."""
    start, end = rest_bytes(problem)
    return max((start, end, *op_bounds(problem)))


def rest_bytes(problem: OrderProblem) -> tuple[int, int]:
    """Bytes before the first and after the last op."""
    start = end = 0
    for index, storage in enumerate(problem.storages):
        kept = storage.resident or storage.output
        if problem.from_start[index] and (kept or problem.accessors[index]):
            start += storage.nbytes
        if kept and (problem.from_start[index] or problem.accessors[index]):
            end += storage.nbytes
    return start, end


def cut_bound(
    problem: OrderProblem,
    order: Sequence[int],
    *,
    floor: int = 0,
    guard: LimitGuard | None = None,
) -> CutBound:
    """The min-cut bound: max over ops v of the fewest bytes of a downset just before v, plus what v adds.

    The downset must hold v's ancestors and neither v nor its descendants; the bytes of downsets are submodular, so
    the fewest are a minimum cut. The hill of v in a known order is never below its bound, so ops are looked at by
    falling hill, and the work stops where hills fall to the bound found so far: most often after a few cuts.

    Args:
        problem: storages and ops.
        order: any legal order; the better it is, the fewer cuts are needed.
        floor: a bound known already.
        guard: one unit of work per cut.
    """
    hills = evaluate_order(problem, order).bytes_at
    guard = guard if guard is not None else LimitGuard(Limits())
    best, best_op = max(floor, per_op_bound(problem)), None
    cuts = 0
    network: _CutNetwork | None = None
    for position in sorted(range(len(order)), key=lambda p: (-hills[p], p)):
        if hills[position] <= best:
            break
        if guard.exhausted() is not None or guard.check_now() is not None:
            return CutBound(best, best_op, cuts, complete=False)
        network = network or _CutNetwork(problem)
        cuts += 1
        value = network.bound(order[position])
        if value > best:
            best, best_op = value, order[position]
    return CutBound(best, best_op, cuts, complete=True)


def lowest_downset(problem: OrderProblem, inside: int = 0, outside: int = 0) -> tuple[int, int]:
    """A downset with the fewest bytes between ops among those that hold some ops and leave others out.

    Args:
        problem: storages and ops.
        inside: bitset of ops that it must hold; their ancestors come along.
        outside: bitset of ops that it must leave out; their descendants stay out as well.

    Returns:
        The downset as a bitset, the smallest by inclusion, and its bytes.
    """
    return _CutNetwork(problem).lowest(inside, outside)


def sub_problem_bound(
    problem: OrderProblem,
    order: Sequence[int],
    *,
    floor: int,
    guard: LimitGuard,
    most_ops: int = 400,
    states: int = 4000,
) -> int:
    """The exact peak of a certified sub-problem around the peak of an order: a bound above that of any one op.

    Let S1 have the fewest bytes of all downsets without the op v, and S2 the fewest of those that hold S1 and v.
    Then M(S1) <= M(X) for all X below S1 and M(S2) <= M(Y) for all Y above S2, so any schedule can be cut down to
    one from S1 to S2 with no higher hill: the lowest peak of the ops between them bounds the whole. In-place
    takeovers of what is read behind S2 as well are counted as made: cutting down a schedule may lose those.

    Args:
        problem: storages and ops.
        order: an order; v is the op at its peak.
        floor: a bound known already; never less is returned.
        guard: one unit of work per cut and per state.
        most_ops: larger sub-problems are left alone.
        states: of each search; what it has proved until then counts.
    """
    profile = evaluate_order(problem, order)
    if profile.peak_position is None or profile.peak_bytes <= floor:
        return floor
    op = order[profile.peak_position]
    network = _CutNetwork(problem)
    below, _ = network.lowest(0, 1 << op)
    above, _ = network.lowest(below | 1 << op, 0)
    ops = _members(above & ~below)
    if len(ops) > most_ops:
        return floor
    inner = window_problem(problem, below, ops, relaxed=True)
    for reverse in (False, True):
        search = DownsetSearch(
            Lattice(inner, reverse=reverse), lower_bytes=floor, upper_bytes=profile.peak_bytes
        )
        end = search.advance(guard, states)
        floor = max(floor, search.lower_bytes)
        if end is not SearchEnd.OPEN:
            break
    return floor


class _CutNetwork:
    """Minimum cuts over the downsets of a problem.

    The source side of a cut is the downset. A storage with creator c and accessors a is a point t with arcs c -> t of
    its size and t -> a without limit: it is paid exactly when c is inside and some a is not. A consumer pulls its
    predecessors in. What is inside and outside for sure is merged into source and sink.
    """

    def __init__(self, problem: OrderProblem) -> None:
        self.problem = problem
        self.before, self.after = closures(problem)
        self.everything = (1 << problem.op_count) - 1
        self._all = [mask_of(accessors) for accessors in problem.accessors]

    def bound(self, op: int) -> int:
        """Fewest bytes while `op` runs, over all downsets from which it may run."""
        _, nbytes = self.lowest(self.before[op], self.after[op] | 1 << op)
        problem = self.problem
        made = sum(
            problem.storages[s].nbytes for s in touched(problem.ops[op]) if is_created_by(problem, s, op)
        )
        return nbytes + made + problem.ops[op].workspace - shared_bytes(takeovers(problem, op))

    def lowest(self, inside: int, outside: int) -> tuple[int, int]:
        """See `lowest_downset`."""
        for op in _members(inside):
            inside |= self.before[op]
        for op in _members(outside):
            outside |= self.after[op]
        free = self.everything & ~inside & ~outside
        place = {op: 2 + k for k, op in enumerate(_members(free))}
        rows: list[int] = []
        columns: list[int] = []
        sizes: list[int | None] = []  # None is without limit

        def arc(start: int, end: int, size: int | None) -> None:
            if start != end:
                rows.append(start)
                columns.append(end)
                sizes.append(size)

        def point(op: int) -> int:
            return place.get(op, 0 if inside >> op & 1 else 1)

        paid = 0
        points = 2 + len(place)
        for index, storage in enumerate(self.problem.storages):
            accessors = self.problem.accessors[index]
            kept = storage.resident or storage.output
            if not storage.nbytes or (not accessors and not (kept and self.problem.from_start[index])):
                continue
            origin = 0 if self.problem.from_start[index] else point(accessors[0])
            whole = self._all[index]
            if origin == 1 or (not kept and not whole & ~inside):
                continue
            if kept or whole & outside:  # never freed within reach: it costs as soon as it exists
                if origin == 0:
                    paid += storage.nbytes
                else:
                    arc(origin, 1, storage.nbytes)
                continue
            arc(origin, points, storage.nbytes)
            for op in _members(whole & free):
                if place[op] != origin:
                    arc(points, place[op], None)
            points += 1
        for op, spot in place.items():
            for earlier in self.problem.predecessors[op]:
                if free >> earlier & 1:
                    arc(spot, place[earlier], None)
        value, reached = _max_flow(points, rows, columns, sizes)
        chosen = inside
        for op, spot in place.items():
            if reached[spot]:
                chosen |= 1 << op
        return chosen, paid + value


def _members(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _max_flow(
    points: int, rows: Sequence[int], columns: Sequence[int], sizes: Sequence[int | None]
) -> tuple[int, Sequence[bool]]:
    """Maximum flow from point 0 to point 1, and which points the source still reaches.

    Sizes are divided by their greatest common divisor; where they do not fit 32 bits even so, they are rounded down,
    and the value with them: it stays a lower bound.
    """
    from math import gcd

    import numpy as np
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    limited = [size for size in sizes if size is not None]
    nothing = [spot == 0 for spot in range(points)]
    if not limited:
        return 0, nothing
    unit = gcd(*limited)
    total = sum(limited)
    # Sums are formed in the solver and where parallel arcs meet: the total with one infinite arc has to fit.
    while total // unit >= _INFINITE // 4:
        unit *= 2
    infinite = total // unit + 1
    data = np.array([infinite if size is None else size // unit for size in sizes], dtype=np.int32)
    graph = csr_array(coo_array((data, (np.array(rows), np.array(columns))), shape=(points, points)))
    graph.data = np.minimum(graph.data, infinite).astype(np.int32)
    graph.indices = graph.indices.astype(np.int32)
    graph.indptr = graph.indptr.astype(np.int32)
    result = maximum_flow(graph, 0, 1)
    residual = csr_array(graph - result.flow)
    residual.data = np.where(residual.data > 0, 1, 0).astype(np.int32)
    residual.eliminate_zeros()
    reached = list(nothing)
    for spot in breadth_first_order(residual, 0, return_predecessors=False):
        reached[int(spot)] = True
    return int(result.flow_value) * unit, reached

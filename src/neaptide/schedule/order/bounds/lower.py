"""Lower bounds of the peak over all orders: of ops, by minimum cuts, by sets of ops that every order must leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.bounds.flow import lowest_downset
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.search.downsets import search_both_ways
from neaptide.schedule.order.search.lattice import Lattice
from neaptide.schedule.order.sharing import shared_bytes, takeovers, touched
from neaptide.schedule.order.steps import Steps, profile

_SUB_PROBLEM_OPS: Final = 400
_SUB_PROBLEM_STATES: Final = 4000


def op_bounds(problem: OrderProblem) -> tuple[int, ...]:
    """For each op what must be there while it runs, whatever the order. O(accesses).

    All that it touches, its workspace, what is resident, and outputs that are there from the start, less the most
    that in-place takeovers may save.
    """
    lasting = {
        index
        for index, storage in enumerate(problem.storages)
        if storage.resident or (storage.output and problem.from_start[index])
    }
    always = sum(problem.storages[index].nbytes for index in lasting)
    bounds = []
    for index, op in enumerate(problem.ops):
        own = sum(problem.storages[s].nbytes for s in touched(op) if s not in lasting)
        bounds.append(always + own + op.workspace - shared_bytes(takeovers(problem, index)))
    return tuple(bounds)


def per_op_bound(problem: OrderProblem) -> int:
    """The largest of `op_bounds`, or what is there at rest. O(accesses)."""
    return max((*rest_bytes(problem), *op_bounds(problem)))


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


@dataclass(frozen=True, slots=True)
class CutBound:
    """A bound of the peak; the op whose hill it is, None when it comes from no op; and the minimum cuts it took."""

    nbytes: int
    op: int | None
    cuts: int


def cut_bound(
    steps: Steps,
    order: Sequence[int],
    *,
    floor: int,
    guard: LimitGuard,
    upper_bytes: int | None = None,
    only_proof: bool = False,
) -> CutBound:
    """The min-cut bound: max over ops v of the fewest bytes of a downset just before v, plus what v adds.

    The downset must hold v's ancestors and neither v nor its descendants; the bytes of downsets are submodular, so
    the fewest are a minimum cut. The hill of v in a known order is never below its bound, so ops are looked at by
    falling hill, and the work stops where hills fall to the bound found so far: most often after a few cuts.

    Args:
        order: the better it is, the fewer cuts are needed.
        guard: one unit of work per cut; on meeting a limit the bound so far is returned.
        upper_bytes: peak of the best order known, if that is another one; at this bound the work is done.
        only_proof: look only at ops whose hill is that high. No other op can bring the bound there, so this is all
            that is of use where a better order is looked for in any case.
    """
    played = profile(steps, order)
    hills, upper = played.bytes_at, played.peak_bytes if upper_bytes is None else upper_bytes
    best, best_op, cuts = floor, None, 0
    for position in sorted(range(len(order)), key=lambda p: (-hills[p], p)):
        if hills[position] <= best or best >= upper:
            break
        if only_proof and hills[position] < upper:
            break
        if guard.exhausted() is not None or guard.check_now() is not None:
            break
        cuts += 1
        value = hill_bound(steps, order[position])
        if value > best:
            best, best_op = value, order[position]
    return CutBound(best, best_op, cuts)


def hill_bound(steps: Steps, op: int, *, include: Iterable[int] = (), exclude: Iterable[int] = ()) -> int:
    """Fewest bytes while `op` runs, over all downsets from which it may run. One minimum cut.

    `include` are ops that have run before it, `exclude` such that have not.
    """
    lowest = lowest_downset(steps, include=(*steps.predecessors[op], *include), exclude=(op, *exclude))
    return steps.bytes_after(lowest) + steps.least_rise(op)


def sub_problem_bound(steps: Steps, order: Sequence[int], *, floor: int, guard: LimitGuard) -> int:
    """The exact peak of a certified sub-problem around the peak of an order: a bound above that of any one op.

    Let S1 have the fewest bytes of all downsets without the op v, and S2 the fewest of those that hold S1 and v.
    Then M(S1) <= M(X) for all X below S1 and M(S2) <= M(Y) for all Y above S2, so any schedule can be cut down to
    one from S1 to S2 with no higher hill: the lowest peak of the ops between them bounds the whole. In-place
    takeovers of what is read after S2 as well are counted as made: cutting down a schedule may lose those.

    The op v is that at the peak of the order. One unit of work per state.
    """
    played = profile(steps, order)
    if played.peak_position is None or played.peak_bytes <= floor:
        return floor
    op = order[played.peak_position]
    below = lowest_downset(steps, exclude=(op,), largest=False)
    above = lowest_downset(steps, include=(*below, op), largest=False)
    ops = sorted(above - below)
    if len(ops) > _SUB_PROBLEM_OPS:
        return floor
    inner = steps.window(below, ops, relaxed=True)
    lattices = (Lattice(inner, reverse=reverse) for reverse in (False, True))
    search = search_both_ways(
        lattices, lower_bytes=floor, upper_bytes=played.peak_bytes, guard=guard, states=_SUB_PROBLEM_STATES
    )
    return max(floor, search.lower_bytes)


def escape_bound(
    steps: Steps,
    order: Sequence[int],
    *,
    floor: int,
    upper_bytes: int,
    guard: LimitGuard,
    reverse: bool = False,
    basin: Sequence[int] | None = None,
) -> int:
    """The lowest peak at which every op is reached, if all downsets that fit could be reached together.

    Let R be a set of ops that holds the ancestors of each of its ops. One op outside R is the first of those to run. It
    runs from a downset inside R that holds all its ancestors; one minimum cut gives the fewest bytes of such a downset,
    and so a lower bound of the op's hill. The lowest of these bounds over all ops outside R bounds the peak. R then grows
    by every op whose hill is within the bound. Each hill takes the best downset inside R, whether or not one order
    reaches all of these downsets. The result is never below the min-cut bound, and costs a cut for each op at the edge
    of R. Reversed, the same holds for the last op that runs outside a set that holds all descendants.

    Args:
        order: the better it is, the fewer cuts are needed: along it ops are reached without any. It may be empty.
        upper_bytes: peak of the best order known; at this bound the work is done.
        guard: one unit of work per cut; on meeting a limit the bound so far is returned.
        basin: bound the way from the state in which these ops are left to another one that holds no more bytes.
    """
    left = range(steps.op_count) if basin is None else basin
    escape = _Escape(steps, left, reverse=reverse)
    way = (
        list(zip(order, profile(steps, order).bytes_at, strict=True))[:: -1 if reverse else 1]
        if order
        else []
    )
    bound, passed = floor, 0
    while bound < upper_bytes:
        # Along the known order what fits is reached at no cost.
        while passed < len(way) and (way[passed][0] not in escape.outside or way[passed][1] <= bound):
            escape.reach(way[passed][0])
            passed += 1
        if not escape.outside or (basin is not None and escape.is_out()):
            break
        hills: dict[int, int] = {}
        is_larger = False
        for op in list(escape.edge):
            if guard.exhausted() is not None or guard.check_now() is not None:
                return min(bound, upper_bytes)
            hills[op] = escape.hill(op)
            if hills[op] <= bound:
                escape.reach(op)
                is_larger = True
        if not is_larger:
            cheapest = min(hills, key=lambda op: (hills[op], op))
            bound = hills[cheapest]
            escape.reach(cheapest)
    return min(bound, upper_bytes)


class _Escape:
    """The ops outside the set, at the begin those that are `left`; and those of them that it may grow by."""

    def __init__(self, steps: Steps, left: Sequence[int], *, reverse: bool) -> None:
        self._steps, self._reverse = steps, reverse
        self.outside = dict.fromkeys(left)
        self._placed = [op for op in range(steps.op_count) if op not in self.outside]
        before, after = steps.predecessors, steps.successors
        if reverse:
            before, after = after, before
        self._after = after
        self._waits_for = [sum(other in self.outside for other in ops) for ops in before]
        self.edge = dict.fromkeys(op for op in left if not self._waits_for[op])

    def hill(self, op: int) -> int:
        """Fewest bytes while an op runs, if it is the first outside what is reached (reversed: the last)."""
        if self._reverse:
            unreached = (other for other in self.outside if other != op)
            return hill_bound(self._steps, op, include=unreached, exclude=self._placed)
        return hill_bound(self._steps, op, include=self._placed, exclude=self.outside)

    def is_out(self) -> bool:
        """Whether a downset of what is reached holds no more bytes than the one at the begin."""
        if self._reverse:
            lowest = lowest_downset(self._steps, include=self.outside, exclude=self._placed, largest=False)
            return len(lowest) < self._steps.op_count - len(self._placed)
        return len(lowest_downset(self._steps, include=self._placed, exclude=self.outside)) > len(
            self._placed
        )

    def reach(self, op: int) -> None:
        if op not in self.outside:
            return
        del self.outside[op], self.edge[op]
        for other in self._after[op]:
            self._waits_for[other] -= 1
            if not self._waits_for[other]:
                self.edge[other] = None

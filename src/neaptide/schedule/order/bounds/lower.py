"""Lower bounds of the peak over all orders: per op, by one minimum cut per op, and over certified sub-problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neaptide.outcome import LimitGuard, Limits
from neaptide.schedule.order.bounds.cuts import inverse, lowest_state, state_bytes
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.search.bitset_lattice import Lattice, mask_of
from neaptide.schedule.order.search.downsets import DownsetSearch, SearchEnd
from neaptide.schedule.order.search.windows import window_problem
from neaptide.schedule.order.sharing import is_created_by, shared_bytes, takeovers, touched
from neaptide.schedule.order.steps import Steps, to_steps


@dataclass(frozen=True, slots=True)
class CutBound:
    """A bound of the peak and how it came about.

    Attributes:
        nbytes: no order has a lower peak.
        op: the op whose hill it is; None when it comes from no op.
        cuts: minimum cuts computed.
        complete: no further cut can raise it; False when a limit stopped the work, or when proof was asked for.
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
    upper_bytes: int | None = None,
    only_proof: bool = False,
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
        upper_bytes: peak of the best order known, if that is another one; at this bound the work is done.
        only_proof: look only at ops whose hill is that high. No other op can bring the bound there, so this is all
            that is of use where a better order is looked for in any case.
    """
    profile = evaluate_order(problem, order)
    hills, upper = profile.bytes_at, profile.peak_bytes if upper_bytes is None else upper_bytes
    guard = guard if guard is not None else LimitGuard(Limits())
    best, best_op = max(floor, per_op_bound(problem)), None
    cuts = 0
    steps: Steps | None = None
    successors: list[list[int]] | None = None
    for position in sorted(range(len(order)), key=lambda p: (-hills[p], p)):
        if hills[position] <= best or best >= upper:
            break
        if only_proof and hills[position] < upper:
            return CutBound(best, best_op, cuts, complete=False)
        if guard.exhausted() is not None or guard.check_now() is not None:
            return CutBound(best, best_op, cuts, complete=False)
        steps = steps or to_steps(problem)
        cuts += 1
        successors = successors or inverse(steps.predecessors)
        value = hill_bound(problem, steps, order[position], successors=successors)
        if value > best:
            best, best_op = value, order[position]
    return CutBound(best, best_op, cuts, complete=True)


def hill_bound(
    problem: OrderProblem,
    steps: Steps,
    op: int,
    *,
    include: Iterable[int] = (),
    exclude: Iterable[int] = (),
    successors: Sequence[Sequence[int]] | None = None,
) -> int:
    """Fewest bytes while `op` runs, over all downsets from which it may run. One minimum cut.

    Args:
        problem: storages and ops.
        steps: of the problem.
        op: which.
        include: ops that have run before it.
        exclude: ops that have not.
        successors: the inverse of the steps' predecessors, if that is known already.
    """
    lowest = lowest_state(
        steps, include=(*problem.predecessors[op], *include), exclude=(op, *exclude), successors=successors
    )
    made = sum(problem.storages[s].nbytes for s in touched(problem.ops[op]) if is_created_by(problem, s, op))
    sharing = shared_bytes(takeovers(problem, op))
    return state_bytes(steps, lowest) + made + problem.ops[op].workspace - sharing


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
    steps = to_steps(problem)
    below = lowest_state(steps, exclude=(op,), largest=False)
    above = lowest_state(steps, include=(*below, op), largest=False)
    ops = sorted(above - below)
    if len(ops) > most_ops:
        return floor
    inner = window_problem(problem, mask_of(sorted(below)), ops, relaxed=True)
    for reverse in (False, True):
        search = DownsetSearch(
            Lattice(inner, reverse=reverse), lower_bytes=floor, upper_bytes=profile.peak_bytes
        )
        end = search.advance(guard, states)
        floor = max(floor, search.lower_bytes)
        if end is not SearchEnd.OPEN:
            break
    return floor

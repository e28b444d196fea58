"""Ordering again after an edit: only the stretch around it, between two narrow places of the old order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from neaptide.errors import VerifyError
from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.schedule.order.bitset_lattice import Lattice
from neaptide.schedule.order.bounds import cut_bound, per_op_bound
from neaptide.schedule.order.downsets import DownsetSearch, SearchEnd
from neaptide.schedule.order.evaluate import DownsetState, evaluate_order
from neaptide.schedule.order.improve import bytes_between, improve_peak, solve_window
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions import reduce

_MOST_OPS: Final = 200  # of the stretch that is solved; beyond that its width is more than a leaf can take
_STATES: Final = 500  # of the stretch, in each direction
_WINDOW_STATES: Final = 50  # elsewhere the old order was good already
_PROOF_STATES: Final = 20_000
_FIRST_CUTS: Final = 4
_REGION_CHAINS: Final = 24  # small regions are found in half the time that all of them take


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """An order after an edit.

    Attributes:
        order: of the edited problem.
        peak_bytes: of it.
        order_lower_bound_bytes: no order of the edited problem has a lower peak.
        start: position at which the stretch that was solved begins.
        end: one past its end.
    """

    order: tuple[int, ...]
    peak_bytes: int
    order_lower_bound_bytes: int
    start: int
    end: int


def reschedule(
    problem: OrderProblem,
    old_order: Sequence[int],
    edited: Iterable[int],
    *,
    limits: Limits | None = None,
    floor_bytes: int = 0,
    most_ops: int = _MOST_OPS,
    proof_states: int = _PROOF_STATES,
) -> Outcome[Rescheduled]:
    """Order an edited problem again, starting from the order before the edit.

    After MAGIS (ASPLOS 2024): the stretch around the edit grows to a narrow waist on either side, where few ops can
    run on both sides of a position and few bytes are alive; if the peak lies in it, it is solved exactly, the rest
    stays as it is. Where the peak is still above the bound, an exact search follows, with the peak as its limit, on
    what exact reductions leave; where that stays open, more cuts, and small windows around the peak.

    Args:
        problem: after the edit.
        old_order: ops of `problem` that were there before, in the order they had; ops that are not in it are new. It
            may break dependencies that the edit has brought.
        edited: ops of `problem` that changed, new ones not needed.
        limits: of time and work; a unit of work is a state or a cut.
        floor_bytes: a bound of `problem` known already, say of `carried_bound`.
        most_ops: of the stretch.
        proof_states: of that search in each direction; 0 leaves it and the reduction before it out.

    Raises:
        VerifyError: `old_order` names an op twice or one that is not there.
    """
    guard = LimitGuard(limits or Limits())
    order = adapted_order(problem, old_order)
    known = set(old_order)
    touched = {*edited, *(op for op in range(problem.op_count) if op not in known)}
    start, end = _stretch(problem, order, touched, most_ops)
    profile = evaluate_order(problem, order)
    peak = profile.peak_bytes
    lower = max(floor_bytes, per_op_bound(problem))
    highest = max(profile.bytes_at[start:end], default=0)
    if peak == highest > lower:
        # An op of the stretch makes the peak: its cut says most often whether there is anything to gain.
        first = LimitGuard(Limits(work=_FIRST_CUTS))
        lower = cut_bound(problem, order, floor=lower, guard=first).nbytes
        guard.exhausted(first.work)
    if peak == highest > lower:
        solved = solve_window(
            problem,
            order,
            start,
            end,
            guard=guard,
            lower_bytes=lower,
            upper_bytes=highest,
            states=_STATES,
        )
        order = order if solved is None else solved
        peak = evaluate_order(problem, order).peak_bytes
    if peak > lower and proof_states:
        order, lower = _proved(problem, order, peak, lower, guard, proof_states)
        peak = evaluate_order(problem, order).peak_bytes
    if peak > lower:
        lower = cut_bound(problem, order, floor=lower, guard=guard).nbytes
    if peak > lower:
        order = improve_peak(problem, order, guard=guard, lower_bytes=lower, states=_WINDOW_STATES)
        peak = evaluate_order(problem, order).peak_bytes
    result = Rescheduled(order, peak, lower, start, end)
    return guard.finish(result, best=peak, bound=lower, detail=f"{end - start} ops ordered again")


def _proved(
    problem: OrderProblem, order: tuple[int, ...], peak: int, lower: int, guard: LimitGuard, states: int
) -> tuple[tuple[int, ...], int]:
    """A short exact search below a peak on what exact reductions leave; the better order, if any, and the bound."""
    reduced = reduce(problem, Limits(time_s=guard.remaining_s()), region_chains=_REGION_CHAINS)
    core = reduced.problem
    for reverse in (False, True):
        search = DownsetSearch(Lattice(core, reverse=reverse), lower_bytes=lower, upper_bytes=peak)
        end = search.advance(guard, states)
        lower = max(lower, search.lower_bytes)
        if search.order is not None:
            return reduced.expand(search.order), lower
        if end is not SearchEnd.OPEN:
            break
    return order, lower


def adapted_order(problem: OrderProblem, old_order: Sequence[int]) -> tuple[int, ...]:
    """A legal order of the edited problem close to the old one.

    An op keeps its place as far as dependencies let it; a new op goes to the place of the first op that needs it,
    or right behind the last that it needs when none does.

    Raises:
        VerifyError: `old_order` names an op twice or one that is not there.
    """
    rank: dict[int, tuple[float, int]] = {}
    for position, op in enumerate(old_order):
        if not 0 <= op < problem.op_count or op in rank:
            raise VerifyError(f"the old order names op {op} twice, or it is not there")
        rank[op] = (float(position), op)
    for op in reversed(range(problem.op_count)):
        if op not in rank:
            users = [rank[s][0] for s in problem.successors[op] if s in rank]
            if users:
                rank[op] = (min(users) - 0.5, op)
    for op in range(problem.op_count):
        if op not in rank:
            rank[op] = (max((rank[b][0] for b in problem.predecessors[op]), default=-1.0) + 0.25, op)
    state = DownsetState(problem)
    heap = [(rank[op], op) for op in state.ready]
    heapify(heap)
    while heap:
        _, op = heappop(heap)
        before = len(state.ready)
        state.run(op)
        for other in list(state.ready)[before - 1 :]:
            heappush(heap, (rank[other], other))
    return state.order()


def _stretch(
    problem: OrderProblem, order: Sequence[int], touched: Iterable[int], most_ops: int
) -> tuple[int, int]:
    """Positions around the touched ops, widened to the narrowest waists within reach."""
    spots = [position for position, op in enumerate(order) if op in set(touched)]
    if not spots:
        return 0, 0
    first, last = min(spots), max(spots)
    slack = max(8, (most_ops - (last + 1 - first)) // 2)
    widths = _waists(problem, order)
    valleys = bytes_between(problem, order)

    def narrowness(position: int) -> tuple[int, int]:
        return widths[position], valleys[position]

    starts = range(max(0, first - slack), first + 1)
    ends = range(last + 1, min(len(order), last + 1 + slack) + 1)
    start = min(starts, key=lambda position: (narrowness(position), position))
    end = min(ends, key=lambda position: (narrowness(position), -position))
    return start, end


def _waists(problem: OrderProblem, order: Sequence[int]) -> list[int]:
    """Before each position and at the end: how many later ops are ready already. O(edges)."""
    place = {op: position for position, op in enumerate(order)}
    change = [0] * (len(order) + 2)
    for op in order:
        ready_from = max((place[b] + 1 for b in problem.predecessors[op]), default=0)
        change[ready_from] += 1
        change[place[op] + 1] -= 1
    widths = []
    total = 0
    for position in range(len(order) + 1):
        total += change[position]
        widths.append(total)
    return widths

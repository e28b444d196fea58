"""CP-SAT on a window of an order: the best order of its operations, proved, with everything outside it fixed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from neaptide.errors import VerifyError
from neaptide.outcome import LimitGuard, Limits, Outcome, Stopwatch, Termination, TerminationReason
from neaptide.schedule.order.bounds.lower import cut_bound, per_op_bound
from neaptide.schedule.order.evaluate import check_order, evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.result import FoundOrder
from neaptide.schedule.order.search.improve import window_at
from neaptide.schedule.order.search.lattice import mask_of
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.cp_sat.solve import WORK_PER_SECOND, CpSatSession
from neaptide_peers.orders.cp_model import order_model
from neaptide_peers.orders.windows import bytes_between, window_problem

_REACHES: Final = (4, 9, 19)  # ops on either side of the peak: 39 in all are still proved, most of the time
_MOST_WORK: Final = 2 * WORK_PER_SECOND  # for one window of many: some seconds


def solve_window_with_cp(
    problem: OrderProblem,
    order: Sequence[int],
    start: int,
    end: int,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    workers: int = 1,
) -> Outcome[tuple[int, ...]]:
    """The order with the ops at `[start, end)` in the order whose highest hill is lowest; the others stay.

    For up to about 40 ops. Where a minimum cut proves the window best as it is, the solver is not started.

    Args:
        problem: storages and ops.
        order: a legal order.
        start: first position of the window.
        end: one past its last.
        limits: of wall-clock time and of work.
        interrupt: when set, the best so far is returned.
        workers: threads of the solver.

    Returns:
        Always a value, no worse than the order given. `best` and `bound` are bytes of the highest hill in the window.

    Raises:
        MissingExtra: OR-tools is not installed, and the window needs it.
        SolverError: the solver died.
        VerifyError: the order is not legal.
    """
    guard = LimitGuard(limits or Limits(), interrupt)
    with CpSatSession(workers=workers) as session:
        return _solve_window(session, problem, order, (start, end), guard, guard.limits.work)


def find_order(
    problem: OrderProblem, order: Sequence[int], *, guard: LimitGuard, lower_bytes: int = 0, workers: int = 1
) -> FoundOrder:
    """Solve windows around the peak with CP-SAT until that lowers it no more. Never returns a worse order.

    Args:
        problem: storages and ops.
        order: a legal order.
        guard: of time, of work (`neaptide_peers.cp_sat.solve.WORK_PER_SECOND`) and of interrupts.
        lower_bytes: stop at this peak.
        workers: threads of the solver.

    Raises:
        MissingExtra: OR-tools is not installed, and a window needs it.
        SolverError: the solver died.
        VerifyError: the order is not legal.
    """
    current = tuple(order)
    with CpSatSession(workers=workers) as session:
        while True:
            profile = evaluate_order(problem, current)
            if profile.peak_position is None or profile.peak_bytes <= lower_bytes:
                return FoundOrder(current)
            for reach in _REACHES:
                window = window_at(bytes_between(problem, current), profile.peak_position, reach)
                work = _MOST_WORK
                if guard.limits.work is not None:
                    work = min(work, guard.limits.work - guard.work)
                outcome = _solve_window(session, problem, current, window, guard, work)
                guard.exhausted(outcome.work)
                found = outcome.require()
                # The peak may stand in another place as well; that is looked at next.
                if max(evaluate_order(problem, found).bytes_at[slice(*window)]) < profile.peak_bytes:
                    current = found
                    break
                if guard.check_now() is not None or window == (0, len(current)):
                    return FoundOrder(current)
            else:
                return FoundOrder(current)


def _solve_window(
    session: CpSatSession,
    problem: OrderProblem,
    order: Sequence[int],
    window: tuple[int, int],
    guard: LimitGuard,
    work: int | None,
) -> Outcome[tuple[int, ...]]:
    watch = Stopwatch()
    start, end = window
    check_order(problem, order)
    given = tuple(order)
    ops = given[start:end]
    inner = window_problem(problem, mask_of(given[:start]), ops)
    peak = evaluate_order(inner, range(len(ops))).peak_bytes
    floor = per_op_bound(inner)
    bound = (
        cut_bound(to_steps(inner), range(len(ops)), floor=floor, guard=LimitGuard(Limits())).nbytes
        if ops
        else peak
    )
    if peak <= bound:
        return Outcome(given, Termination(TerminationReason.OPTIMAL, best=peak, bound=peak), watch.seconds())
    modelled = order_model(inner, lower_bytes=bound, hint=range(len(ops)))
    outcome = session.solve(
        modelled.model,
        Limits(guard.remaining_s(), work, guard.limits.seed),
        stop=lambda: guard.check_now() == "interrupt",
    )
    ended = outcome.termination
    if ended.reason is TerminationReason.INFEASIBLE:
        raise VerifyError("CP-SAT says that a window has no order, though one is known")
    best = given
    if outcome.value is not None:
        found = modelled.order(outcome.value.values)
        reached = evaluate_order(inner, found).peak_bytes
        if reached > outcome.value.objective * modelled.unit_bytes:
            raise VerifyError("the constraint model of a window counts fewer bytes than there are")
        if reached < peak:
            peak, best = reached, (*given[:start], *(ops[k] for k in found), *given[end:])
            check_order(problem, best)
    if ended.bound is not None:
        bound = min(peak, max(bound, int(ended.bound) * modelled.unit_bytes))
    reason = ended.reason
    if peak <= bound:
        reason = TerminationReason.OPTIMAL
    elif reason is TerminationReason.NO_SOLUTION_FOUND:
        reason = TerminationReason.FEASIBLE  # there is the order given
    limit = ended.limit if reason is TerminationReason.FEASIBLE else None
    return Outcome(best, Termination(reason, limit, ended.detail, peak, bound), watch.seconds(), outcome.work)

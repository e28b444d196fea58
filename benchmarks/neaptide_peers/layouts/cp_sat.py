"""Layouts by CP-SAT: a second exact solver beside our own search, for cross-checks and some hard cases."""

from __future__ import annotations

import threading

from neaptide.errors import VerifyError
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.outcome import Limits, Outcome, Stopwatch, Termination, TerminationReason
from neaptide_peers.cp_sat.solve import solve
from neaptide_peers.layouts.cp_model import layout_model, unit_bytes


def find_layout(
    problem: LayoutProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    capacity_bytes: int | None = None,
) -> Outcome[Layout]:
    """The smallest arena, or a layout within a capacity: `minimise_with_cp_sat` or `fit_with_cp_sat`."""
    if capacity_bytes is None:
        return minimise_with_cp_sat(problem, limits, interrupt)
    return fit_with_cp_sat(problem, capacity_bytes, limits, interrupt)


def fit_with_cp_sat(
    problem: LayoutProblem,
    capacity_bytes: int,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    hint: Layout | None = None,
    workers: int = 1,
    with_cumulative: bool = False,
) -> Outcome[Layout]:
    """A layout within a capacity, or the proof that there is none.

    Args:
        problem: what is to be placed.
        capacity_bytes: of the arena.
        limits: of wall-clock time, of which starting the solver takes about a second, and of work.
        interrupt: when set, the search ends.
        hint: offsets to start from; they need not fit the capacity.
        workers: threads of the solver.
        with_cumulative: add the redundant constraint that at every offset the lifetimes there fit into the whole time.

    Returns:
        `INFEASIBLE`: nothing fits; that is proved. `NO_SOLUTION_FOUND`: not proved either way. With a layout: `OPTIMAL`
        if no arena is smaller, else `FEASIBLE`. `best` and `bound` are bytes of the arena.

    Raises:
        MissingExtra: OR-tools is not installed.
        SolverError: the solver died.
    """
    watch = Stopwatch()
    lower = arena_lower_bound(problem)
    unit = unit_bytes(problem)
    beyond = max(lower, (capacity_bytes // unit + 1) * unit)
    if lower > capacity_bytes:
        detail = "the bytes in use at one step exceed the capacity"
        return Outcome(
            None, Termination(TerminationReason.INFEASIBLE, detail=detail, bound=beyond), watch.seconds()
        )
    if not len(problem):
        return _outcome(Layout((), 0), lower, Termination(TerminationReason.OPTIMAL), watch, 0)
    placed = layout_model(problem, capacity_bytes, hint=hint, with_cumulative=with_cumulative)
    found = solve(
        placed.model, (limits or Limits()).after(watch.seconds()), workers=workers, interrupt=interrupt
    )
    if found.termination.reason is TerminationReason.INFEASIBLE:
        return Outcome(
            None, Termination(TerminationReason.INFEASIBLE, bound=beyond), watch.seconds(), found.work
        )
    layout = None
    if found.value is not None:
        layout = placed.layout(problem, found.value.values)
        check_layout(problem, layout, capacity_bytes=capacity_bytes)
    return _outcome(layout, lower, found.termination, watch, found.work)


def minimise_with_cp_sat(
    problem: LayoutProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    hint: Layout | None = None,
    workers: int = 1,
    with_cumulative: bool = False,
) -> Outcome[Layout]:
    """The layout with the smallest arena. Always has a value: at worst the hint, or all buffers end to end.

    Args:
        problem: what is to be placed.
        limits: of wall-clock time, of which starting the solver takes about a second, and of work.
        interrupt: when set, the search ends.
        hint: a layout to start from and to improve on; the better it is, the less there is to search.
        workers: threads of the solver.
        with_cumulative: add the redundant constraint that at every offset the lifetimes there fit into the whole time.

    Returns:
        `OPTIMAL` with proof, else `FEASIBLE` or `INTERRUPTED` with a bound. `best` and `bound` are bytes of the arena.

    Raises:
        MissingExtra: OR-tools is not installed.
        SolverError: the solver died.
        VerifyError: the hint is no layout of the problem.
    """
    watch = Stopwatch()
    best = _end_to_end(problem) if hint is None else hint
    check_layout(problem, best)
    lower = arena_lower_bound(problem)
    if best.arena_bytes <= lower:
        return _outcome(best, lower, Termination(TerminationReason.OPTIMAL), watch, 0)
    placed = layout_model(
        problem, best.arena_bytes, lower_bytes=lower, hint=best, with_cumulative=with_cumulative
    )
    found = solve(
        placed.model, (limits or Limits()).after(watch.seconds()), workers=workers, interrupt=interrupt
    )
    ended = found.termination
    if ended.reason is TerminationReason.INFEASIBLE:
        raise VerifyError("CP-SAT says that there is no layout, though one is known")
    if found.value is not None:
        layout = placed.layout(problem, found.value.values)
        check_layout(problem, layout)
        if layout.arena_bytes < best.arena_bytes:
            best = layout
    if ended.bound is not None:
        lower = max(lower, int(ended.bound) * placed.unit)
    return _outcome(best, lower, ended, watch, found.work)


def _end_to_end(problem: LayoutProblem) -> Layout:
    """All buffers on top of each other, above those that are fixed."""
    top = max((b.offset + b.nbytes for b in problem.buffers if b.offset is not None), default=0)
    offsets = []
    for buffer in problem.buffers:
        if buffer.offset is not None:
            offsets.append(buffer.offset)
            continue
        offset = -(-top // buffer.alignment) * buffer.alignment
        offsets.append(offset)
        top = offset + buffer.nbytes
    return Layout.of(problem, tuple(offsets))


def _outcome(
    layout: Layout | None, lower_bytes: int, ended: Termination, watch: Stopwatch, work: int
) -> Outcome[Layout]:
    """What a search amounts to, with the arena in bytes as what counts."""
    best = None if layout is None else layout.arena_bytes
    if best is not None and best <= lower_bytes:
        reason, limit = TerminationReason.OPTIMAL, None
    elif layout is not None and ended.reason is not TerminationReason.INTERRUPTED:
        reason, limit = TerminationReason.FEASIBLE, ended.limit
    else:
        reason, limit = ended.reason, ended.limit
    return Outcome(layout, Termination(reason, limit, ended.detail, best, lower_bytes), watch.seconds(), work)

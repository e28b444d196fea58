"""Make a known order better: exact search in windows around its peak."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.search.beam import beam_order
from neaptide.schedule.order.search.bitset_lattice import Lattice, mask_of
from neaptide.schedule.order.search.downsets import DownsetSearch, SearchEnd
from neaptide.schedule.order.search.windows import window_problem
from neaptide.schedule.order.settings import DEFAULT, OrderSettings


def improve_peak(
    problem: OrderProblem,
    order: Sequence[int],
    *,
    guard: LimitGuard,
    lower_bytes: int = 0,
    settings: OrderSettings = DEFAULT,
) -> tuple[int, ...]:
    """Solve windows around the peak exactly until that lowers it no more. Never returns a worse order.

    Args:
        problem: storages and ops.
        order: a legal order.
        guard: one unit of work per state.
        lower_bytes: stop at this peak.
        settings: widths of windows, and how far each is searched.
    """
    current = tuple(order)
    while True:
        profile = evaluate_order(problem, current)
        if profile.peak_position is None or profile.peak_bytes <= lower_bytes:
            return current
        for width in settings.window_widths:
            start, end = window_at(problem, current, profile.peak_position, width)
            better = solve_window(
                problem,
                current,
                start,
                end,
                guard=guard,
                lower_bytes=lower_bytes,
                upper_bytes=profile.peak_bytes,
                settings=settings,
            )
            if better is not None:
                current = better
                break
            if guard.check_now() is not None or end - start == len(current):
                return current
        else:
            return current


def window_at(problem: OrderProblem, order: Sequence[int], position: int, width: int) -> tuple[int, int]:
    """A window of about `width` ops around a position, ending where few bytes are alive on either side.

    Each side reaches at least a quarter and at most all of the width, and ends at its lowest valley.
    """
    valleys = bytes_between(problem, order)
    near, far = max(1, width // 4), width
    start_range = range(max(0, position - far), max(0, position - near) + 1)
    end_range = range(min(len(order), position + 1 + near), min(len(order), position + 1 + far) + 1)
    start = min(start_range, key=lambda p: (valleys[p], -p))
    end = min(end_range, key=lambda p: (valleys[p], p))
    return start, end


def bytes_between(problem: OrderProblem, order: Sequence[int]) -> list[int]:
    """Bytes before each op and after the last: entry p is the state in which `order[p]` starts. O(accesses)."""
    position_of = {op: p for p, op in enumerate(order)}
    change = [0] * (len(order) + 2)
    for index, storage in enumerate(problem.storages):
        accessors = problem.accessors[index]
        kept = storage.resident or storage.output
        if not accessors and not (kept and problem.from_start[index]):
            continue
        start = 0 if problem.from_start[index] else position_of[accessors[0]] + 1
        end = len(order) + 1 if kept else max(position_of[op] for op in accessors) + 1
        if start < end:
            change[start] += storage.nbytes
            change[end] -= storage.nbytes
    return list(accumulate(change[: len(order) + 1]))


def solve_window(
    problem: OrderProblem,
    order: Sequence[int],
    start: int,
    end: int,
    *,
    guard: LimitGuard,
    lower_bytes: int,
    upper_bytes: int,
    settings: OrderSettings,
) -> tuple[int, ...] | None:
    """The order with the ops at `[start, end)` in their best order, if their highest hill falls below `upper_bytes`.

    Searches both directions in turn, at most `settings.window_states` states each; where that proves nothing, a beam in each
    direction, with free moves up to what the searches have proved.
    """
    ops = order[start:end]
    inner = window_problem(problem, mask_of(order[:start]), ops)
    found: tuple[int, ...] | None = None
    lattices = [Lattice(inner, reverse=reverse) for reverse in (False, True)]
    for lattice in lattices:
        search = DownsetSearch(lattice, lower_bytes=lower_bytes, upper_bytes=upper_bytes)
        end_of_search = search.advance(guard, settings.window_states)
        if end_of_search is SearchEnd.FOUND:
            found = search.order
            break
        if end_of_search is SearchEnd.NONE_BELOW:
            return None
        lower_bytes = max(lower_bytes, search.lower_bytes)
    else:
        for lattice in lattices:
            found = found or beam_order(
                lattice, settings.window_beam_width, level=lower_bytes, upper_bytes=upper_bytes, guard=guard
            )
    return None if found is None else (*order[:start], *(ops[k] for k in found), *order[end:])

"""Make a known order better: exact search in windows around its peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.search.downsets import SearchEnd, beam_order, search_both_ways
from neaptide.schedule.order.search.lattice import Lattice
from neaptide.schedule.order.steps import Steps, profile

WINDOW_STATES: Final = 2_000
"""Of the exact search of a window, in each direction."""
_WIDTHS: Final = (16, 32, 64, 128, 256)  # operations of the windows around a peak, one after another
_BEAM_WIDTH: Final = 4  # where the search of a window comes to no end


def improve_peak(
    steps: Steps,
    order: Sequence[int],
    *,
    guard: LimitGuard,
    lower_bytes: int = 0,
    states: int = WINDOW_STATES,
) -> tuple[int, ...]:
    """Solve windows around the peak exactly until that lowers it no more. Never returns a worse order.

    One unit of work per state, of which each window has some in each direction.
    """
    current = tuple(order)
    while True:
        played = profile(steps, current)
        position = played.peak_position
        if position is None or played.peak_bytes <= lower_bytes:
            return current
        for width in _WIDTHS:
            start, end = window_at(played.between, position, width)
            better = solve_window(
                steps,
                current,
                (start, end),
                guard=guard,
                lower_bytes=lower_bytes,
                upper_bytes=played.peak_bytes,
                states=states,
            )
            if better is not None:
                current = better
                break
            if guard.check_now() is not None or end - start == len(current):
                return current
        else:
            return current


def window_at(between: Sequence[int], position: int, width: int) -> tuple[int, int]:
    """A window of about `width` ops around a position, ending where few bytes are live on either side.

    Each side reaches at least a quarter and at most all of the width, and ends at its lowest valley; `between` are the
    bytes before each op and at the end.
    """
    near, far, count = max(1, width // 4), width, len(between) - 1
    start_range = range(max(0, position - far), max(0, position - near) + 1)
    end_range = range(min(count, position + 1 + near), min(count, position + 1 + far) + 1)
    start = min(start_range, key=lambda p: (between[p], -p))
    end = min(end_range, key=lambda p: (between[p], p))
    return start, end


def solve_window(
    steps: Steps,
    order: Sequence[int],
    window: tuple[int, int],
    *,
    guard: LimitGuard,
    lower_bytes: int,
    upper_bytes: int,
    states: int,
) -> tuple[int, ...] | None:
    """The order with the ops of `[start, end)` in their best order, if their highest hill falls below `upper_bytes`.

    Searches both directions in turn; where that proves nothing, a beam in each direction, with free moves up to what
    the searches have proved.
    """
    start, end = window
    ops = order[start:end]
    inner = steps.window(order[:start], ops)
    lattices = [Lattice(inner, reverse=reverse) for reverse in (False, True)]
    search = search_both_ways(
        lattices, lower_bytes=lower_bytes, upper_bytes=upper_bytes, guard=guard, states=states
    )
    found = search.order
    for lattice in lattices if search.end is SearchEnd.OPEN else ():
        found = found or beam_order(
            lattice, _BEAM_WIDTH, level=search.lower_bytes, upper_bytes=upper_bytes, guard=guard
        )
    return None if found is None else (*order[:start], *(ops[k] for k in found), *order[end:])

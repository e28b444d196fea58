"""Schedule and layout together: among orders with no higher peak, one whose arena comes closer to it.

Bytes live at once do not say whether buffers can be packed without waste. Where the best layout found is well above
them, steps are moved a little, which shortens some lifetimes and lengthens others, and what packs better is kept.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.layout.best_layout import best_layout
from neaptide.layout.bounds import live_bytes
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import LayoutResult
from neaptide.outcome import LimitGuard, Limits, Outcome

TOLERATED_GAP: Final = 0.01
"""Of the arena above the bytes live at once; below it no other order is tried."""
_MOST_TRIES: Final = 200
_NODES: Final = 20_000  # of the layout of a moved order; the first has ten times as many
_FARTHEST: Final = 8


@dataclass(frozen=True, slots=True)
class ArenaOrder:
    """An order and its layout."""

    order: tuple[int, ...]
    problem: LayoutProblem
    layout: LayoutResult
    tried: int


def lower_arena(
    order: Sequence[int],
    buffers: Callable[[Sequence[int]], LayoutProblem],
    is_legal: Callable[[Sequence[int]], bool],
    limits: Limits,
    interrupt: threading.Event | None = None,
    *,
    tolerated_gap: float = TOLERATED_GAP,
) -> Outcome[ArenaOrder]:
    """The order, or one near it with the same or fewer bytes live at once and a smaller arena.

    Steps at the ends of buffers that stick out of the live bytes are moved by a few places. A moved order is kept
    when it is legal, its live bytes are no higher and its arena is no larger. Work is counted in layouts.

    Args:
        buffers: the layout problem of an order.
        tolerated_gap: of the arena above the bytes live at once, as a share; other orders are tried only above it.
    """
    guard = LimitGuard(limits, interrupt)
    draw = random.Random(limits.seed)  # noqa: S311 - no secrets here
    problem = buffers(order)
    best = ArenaOrder(tuple(order), problem, _laid_out(problem, 10 * _NODES, guard, interrupt), 1)
    most = live_bytes(problem)
    seen = {best.order}
    for _ in range(_MOST_TRIES):
        if _gap(best.layout) <= tolerated_gap or guard.exhausted() is not None:
            break
        moved = _moved(best, draw)
        if moved in seen or not is_legal(moved):
            continue
        seen.add(moved)
        problem = buffers(moved)
        if live_bytes(problem) > most:
            continue
        found = _laid_out(problem, _NODES, guard, interrupt)
        if found.arena_bytes is not None and found.arena_bytes <= (best.layout.arena_bytes or 0):
            best = ArenaOrder(moved, problem, found, len(seen))
    return guard.finish(best, best=best.layout.arena_bytes, bound=live_bytes(best.problem))


def _laid_out(
    problem: LayoutProblem, work: int, guard: LimitGuard, interrupt: threading.Event | None
) -> LayoutResult:
    return best_layout(problem, Limits(guard.remaining_s(), work, guard.limits.seed), interrupt).require()


def _gap(result: LayoutResult) -> float:
    """Against live bytes, not the bound: that no layout of this order is smaller says nothing of another order."""
    arena = result.arena_bytes or 0
    return (arena - result.live_bytes) / arena if arena else 0.0


def _moved(best: ArenaOrder, draw: random.Random) -> tuple[int, ...]:
    """The order with one step moved: one at an end of a buffer whose top is above the live bytes."""
    layout = best.layout.layout
    assert layout is not None
    out = [
        buffer
        for buffer, offset in zip(best.problem.buffers, layout.offsets, strict=True)
        if offset + buffer.nbytes > best.layout.live_bytes
    ]
    buffer = draw.choice(out)
    overlapping = [b for b in best.problem.buffers if b.start < buffer.end and buffer.start < b.end]
    chosen = draw.choice(overlapping)
    count = len(best.order)
    place = min(draw.choice((chosen.start, chosen.end - 1, chosen.end)), count - 1)
    target = min(max(place + draw.randint(-_FARTHEST, _FARTHEST), 0), count - 1)
    rest = [*best.order[:place], *best.order[place + 1 :]]
    rest.insert(target, best.order[place])
    return tuple(rest)

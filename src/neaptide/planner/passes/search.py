"""The loop that all strategies share: pick a pass for a state, apply it, measure what comes out."""

from __future__ import annotations

import threading
from typing import Protocol, TypeVar

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.planner.passes.archive import Archive, Move
from neaptide.planner.passes.space import Space

S = TypeVar("S")


class PassStrategy(Protocol[S]):
    """Chooses what is tried next, the same under the same seed. `tests/planner/passes/test_pass_strategy_conformance.py` holds it."""

    def pick(self, archive: Archive[S]) -> Move | None:
        """A move that was not tried, where the pass finds a place; None to end the search."""


def search_passes(
    space: Space[S],
    strategy: PassStrategy[S],
    limits: Limits,
    *,
    enough_bytes: int = 0,
    interrupt: threading.Event | None = None,
) -> Outcome[Archive[S]]:
    """Search sequences of passes for the lowest footprint.

    A unit of work is a measurement, that of the start included: an order of a state that was not seen before. Passes that
    change nothing, or lead to a state of the archive, are free.

    Args:
        enough_bytes: the search ends at the first state that needs no more.

    Returns:
        All that was measured. The start is in it, so the best is never above it.
    """
    guard = LimitGuard(limits, interrupt)
    guard.exhausted()
    archive = Archive(space.key(space.start), space.start, space.measure(space.start))
    detail = ""
    while True:
        if archive.best.nbytes <= enough_bytes:
            detail = "the footprint is within the budget"
            break
        if guard.check_now() is not None:
            break
        move = strategy.pick(archive)
        if move is None:
            detail = "the strategy has no pass left to try"
            break
        if not _made(space, archive, move, guard):
            detail = "no measurement is left"
            break
    return guard.finish(archive, best=archive.best.nbytes, detail=detail)


def _made(space: Space[S], archive: Archive[S], move: Move, guard: LimitGuard) -> bool:
    """Make a move; False where no measurement is left for what it leads to."""
    state = space.after(archive.entries[move.entry].state, move.name)
    if state is None:
        archive.reached(move, None)
        return True
    key = space.key(state)
    known = archive.number_of(key)
    if known is not None:
        archive.reached(move, known)
        return True
    if guard.exhausted() is not None:
        return False
    archive.add(move, key, state, space.measure(state))
    return True

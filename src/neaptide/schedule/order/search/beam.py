"""Beam search with free moves: an upper bound that is good where lists are not, at a price that is known."""

from __future__ import annotations

from neaptide.outcome import LimitGuard
from neaptide.schedule.order.search.bitset_lattice import Lattice, Ready
from neaptide.schedule.order.search.free_moves import SearchState, close


def beam_order(
    lattice: Lattice, width: int, *, level: int, upper_bytes: int, guard: LimitGuard
) -> tuple[int, ...] | None:
    """The best order that a beam finds.

    Args:
        lattice: of the problem, forwards or reversed.
        width: states kept from one branching to the next, by lowest peak so far, then fewest bytes.
        level: a lower bound of the peak: free moves are made up to it, which is what makes a narrow beam good.
        upper_bytes: only orders with a peak below this count.
        guard: one unit of work per state.

    Returns:
        An order with a peak below `upper_bytes`, or None when the beam finds none or a limit stops it.
    """
    parents: dict[int, tuple[int, tuple[int, ...]]] = {}
    reached_at: dict[int, int] = {}  # lowest peak on a way to a state; ways of `parents` keep to it
    beam: list[tuple[int, int, int, Ready]] = [
        (max(level, lattice.start_bytes), lattice.start_bytes, lattice.left, lattice.ready)
    ]
    best: tuple[int, ...] | None = None
    while beam:
        following: dict[int, tuple[int, int, int, Ready]] = {}
        for peak, nbytes, left, ready in beam:
            if guard.exhausted() is not None or guard.check_now() is not None:
                return best
            state = SearchState(left, nbytes, ready, [])
            moves = close(lattice, state, peak)
            if state.left != left:
                if reached_at.get(state.left, upper_bytes) <= peak:
                    continue
                reached_at[state.left] = peak
                parents[state.left] = (left, tuple(state.path))
            if not state.left:
                if peak < upper_bytes:
                    upper_bytes = peak
                    best = _trace(lattice, parents)
                continue
            for hill, after, op in moves:
                reached = max(peak, hill)
                then = state.left & ~(1 << op)
                if reached_at.get(then, upper_bytes) <= reached:
                    continue
                reached_at[then] = reached
                now_ready = tuple(x for x in state.ready if x != op) + tuple(lattice.enabled(then, op))
                following[then] = (reached, after, then, now_ready)
                parents[then] = (state.left, (op,))
        beam = sorted(following.values(), key=lambda entry: entry[:3])[:width]
    return best


def _trace(lattice: Lattice, parents: dict[int, tuple[int, tuple[int, ...]]]) -> tuple[int, ...]:
    placed: list[tuple[int, ...]] = []
    at = 0
    while at != lattice.left:
        at, path = parents[at]
        placed.append(path)
    return lattice.order([op for path in reversed(placed) for op in path])

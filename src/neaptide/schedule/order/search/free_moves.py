"""Moves that can be made at once without losing the best order: single ops, and short runs of ops.

**Single op.** Let a ready op v have a hill of at most B and not raise the bytes between ops. Then from any superset
T of the state, running v first lowers (or keeps) all bytes of T's future, by submodularity; so any completion with
a peak of at least B can start with v.

**Run of ops.** Let W be reached from a state U by ops whose hills are at most B, and let W have the fewest bytes of
all downsets between U and W. For any T on a completion from U, `M(T | W) <= M(T) + M(W) - M(T & W) <= M(T)`, so the
completion united with W has no higher hill, and it starts at W. A search that stands at U may go to W and forget
every other way on. The condition on W is checked by looking at all downsets between U and W; the ops in W but not
in U are few.

Both hold with in-place takeovers, which save more the more has run. Reversed, unions become intersections, where a
takeover may be lost: there, ops that touch an operand of a takeover that depends on the order are `frozen`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neaptide.schedule.order.search.bitset_lattice import Lattice, Ready

_LONGEST_RUN: Final = 24
_MOST_BETWEEN: Final = 400  # downsets looked at to check one run


@dataclass(slots=True)
class SearchState:
    """A state of a search: what is left, its bytes, what is ready, and the ops that led here from the state before."""

    left: int
    nbytes: int
    ready: Ready
    path: list[int]


def take(lattice: Lattice, state: SearchState, op: int, following: int) -> None:
    """Run a ready op in place."""
    state.left &= ~(1 << op)
    state.nbytes = following
    state.path.append(op)
    state.ready = tuple(x for x in state.ready if x != op) + tuple(lattice.enabled(state.left, op))


def close(
    lattice: Lattice, state: SearchState, level: int, *, runs: bool = True
) -> list[tuple[int, int, int]]:
    """Make free moves until there are none.

    Args:
        lattice: of the problem.
        state: changed in place.
        level: bytes that no completion can stay below.
        runs: look for runs of ops too, not for single ops only.

    Returns:
        For each op that is ready in the end: `(hill, bytes after it, op)`.
    """
    frozen = lattice.frozen
    while True:
        moves: list[tuple[int, int, int]] = []
        taken = False
        for op in state.ready:  # of this moment: what becomes ready on the way has its turn in the next pass
            hill, following = lattice.move(state.left, state.nbytes, op)
            if hill <= level and following <= state.nbytes and not frozen[op]:
                take(lattice, state, op, following)
                taken = True
            elif not taken:
                moves.append((hill, following, op))
        if taken:
            continue
        if not runs or not any(_run(lattice, state, level, op) for hill, _, op in moves if hill <= level):
            return moves


def _run(lattice: Lattice, state: SearchState, level: int, first: int) -> bool:
    """Try the run that starts with an op and goes on with what it makes ready; makes it if it is free."""
    if lattice.frozen[first]:
        return False
    left, nbytes, run = state.left, state.nbytes, [first]
    _, nbytes = lattice.move(left, nbytes, first)
    left &= ~(1 << first)
    open_ops = lattice.enabled(left, first)
    lowest = state.nbytes
    while nbytes > lowest:
        best: tuple[int, int] | None = None
        for op in open_ops:
            hill, following = lattice.move(left, nbytes, op)
            if hill <= level and not lattice.frozen[op] and (best is None or (following, op) < best):
                best = (following, op)
        if best is None or len(run) == _LONGEST_RUN:
            return False
        nbytes, op = best
        left &= ~(1 << op)
        run.append(op)
        open_ops.remove(op)
        open_ops += lattice.enabled(left, op)
    if not _is_lowest_between(lattice, state, run, nbytes):
        return False
    for op in run:
        _, following = lattice.move(state.left, state.nbytes, op)
        take(lattice, state, op, following)
    return True


def _is_lowest_between(lattice: Lattice, state: SearchState, run: list[int], lowest: int) -> bool:
    """Whether no downset between a state and the end of a run has fewer bytes than that end."""
    waiting = [(state.left, state.nbytes)]
    seen = {state.left}
    while waiting:
        left, nbytes = waiting.pop()
        for op in run:
            if left >> op & 1 and not lattice.blockers[op] & left:
                _, following = lattice.move(left, nbytes, op)
                then = left & ~(1 << op)
                if following < lowest:
                    return False
                if then not in seen:
                    if len(seen) == _MOST_BETWEEN:
                        return False
                    seen.add(then)
                    waiting.append((then, following))
    return True

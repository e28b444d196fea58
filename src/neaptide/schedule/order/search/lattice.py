"""The lattice of downsets of some steps on bitsets, forwards or reversed, and the moves on it that lose no best order.

**Single op.** Let a ready op v have a hill of at most B and not raise the bytes between ops. Then from any superset
T of the state, running v first lowers (or keeps) all bytes of T's future, by submodularity; so any completion with
a peak of at least B can start with v.

**Run of ops.** Let W be reached from a state U by ops whose hills are at most B, and let W have the fewest bytes of
all downsets between U and W. For any T on a completion from U, `M(T | W) <= M(T) + M(W) - M(T & W) <= M(T)`, so the
completion united with W has no higher hill, and it starts at W. A search that stands at U may go to W and forget
every other way on. The condition on W is checked by looking at all downsets between U and W; the ops in W but not
in U are few.

Both hold with in-place takeovers, which save more the more has run. Reversed, unions become intersections, where a
takeover may be lost: there, ops that may free the operand of a takeover that depends on the order are `frozen`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from neaptide.schedule.order.sharing import Takeover, shared_bytes
from neaptide.schedule.order.steps import Steps

Ready: TypeAlias = tuple[int, ...]
_LONGEST_RUN: Final = 24
_MOST_BETWEEN: Final = 400  # downsets looked at to check one run


class Lattice:
    """Moves between downsets.

    A state is a pair `(left, nbytes)`: the set of ops still to be placed, as a bitset, and the bytes between ops.
    Forwards ops are placed from the first on; reversed from the last on, which suits problems that are hard the
    other way round. `move` gives the bytes while an op runs, which are the same in both directions.

    The bytes of a storage between ops, `[created] - [created and all accesses done]`, make the bytes of a state a
    submodular function of the set of ops that have run. Every rule of the searches rests on that.

    Attributes:
        blockers: by op, bitset of ops that must be placed before it.
        frozen: by op, whether no rule may place it early (reversed only): a takeover depends on when it runs.
    """

    def __init__(self, steps: Steps, *, reverse: bool = False) -> None:
        self.reverse = reverse
        count = steps.op_count
        self.left = (1 << count) - 1
        self.blockers = [mask_of(x) for x in (steps.successors if reverse else steps.predecessors)]
        self.followers = steps.predecessors if reverse else steps.successors
        self.ready: Ready = tuple(op for op in range(count) if not self.blockers[op])
        self.start_bytes = steps.bytes_after(range(count)) if reverse else steps.start_bytes
        self.frozen = [False] * count
        self._rise, self._delta = steps.rise, steps.delta
        masks = [mask_of(coupling.ops) for coupling in steps.couplings]
        ties: list[dict[int, int]] = [
            {} for _ in range(count)
        ]  # by op, bytes it frees once all of a set have run
        for coupling, mask in zip(steps.couplings, masks, strict=True):
            for op in coupling.ops:
                others = mask & ~(1 << op)
                ties[op][others] = ties[op].get(others, 0) + coupling.nbytes
        self._ties = [tuple(found.items()) for found in ties]
        self._takeovers: dict[int, tuple[tuple[int, Takeover], ...]] = {}
        for op, pairs in steps.takeovers.items():
            self._takeovers[op] = tuple(
                (0 if index is None else masks[index] & ~(1 << op), pair) for index, pair in pairs
            )
            for index, _ in pairs:
                for other in steps.couplings[index].ops if index is not None and reverse else ():
                    self.frozen[other] = True

    def first(self) -> SearchState:
        """The state in which nothing is placed."""
        return SearchState(self.left, self.start_bytes, self.ready, [])

    def move(self, left: int, nbytes: int, op: int) -> tuple[int, int]:
        """Bytes while a ready op runs, and bytes of the state that follows. O(storages of the op)."""
        change = self._delta[op]
        for others, size in self._ties[op]:
            if (others & left == others) if self.reverse else not others & left:
                change -= size
        following = nbytes - change if self.reverse else nbytes + change
        hill = (following if self.reverse else nbytes) + self._rise[op]
        if op in self._takeovers:
            hill -= shared_bytes(
                [
                    pair
                    for others, pair in self._takeovers[op]
                    if (others & left == others if self.reverse else not others & left)
                ]
            )
        return hill, following

    def enabled(self, left: int, op: int) -> list[int]:
        """Ops that become ready when `op` is placed; `left` is already without it."""
        return [other for other in self.followers[op] if not self.blockers[other] & left]

    def order(self, placed: Sequence[int]) -> tuple[int, ...]:
        """Ops as placed, in program time."""
        return tuple(reversed(placed)) if self.reverse else tuple(placed)


def mask_of(ops: Sequence[int]) -> int:
    """A set of ops as a bitset."""
    bits = bytearray(max(ops, default=0) // 8 + 1)
    for op in ops:
        bits[op >> 3] |= 1 << (op & 7)
    return int.from_bytes(bits, "little")


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
    """Make free moves until there are none; `(hill, bytes after it, op)` for each op that is ready in the end.

    `level` are bytes that no completion can stay below; `runs` looks for runs of ops too, not for single ops only.
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

"""The lattice of downsets of an ordering problem on bitsets, forwards or reversed: what exact searches walk on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import Takeover, is_created_by, shared_bytes, takeovers, touched

Ready: TypeAlias = tuple[int, ...]


class Lattice:
    """Moves between downsets.

    A state is a pair `(left, nbytes)`: the set of ops still to be placed, as a bitset, and the bytes between ops.
    Forwards ops are placed from the first on; reversed from the last on, which suits problems that are hard the
    other way round. `move` gives the bytes while an op runs, which are the same in both directions.

    The bytes of a storage between ops, `[created] - [created and all accesses done]`, make the bytes of a state a
    submodular function of the set of ops that have run. Every rule of the searches rests on that.

    Attributes:
        left: the start state's set: all ops.
        start_bytes: bytes of the start state.
        ready: ops that may be placed first.
        blockers: by op, bitset of ops that must be placed before it.
        frozen: by op, whether no rule may place it early (reversed only): a takeover depends on when it runs.
    """

    def __init__(self, problem: OrderProblem, *, reverse: bool = False) -> None:
        self.problem = problem
        self.reverse = reverse
        count = problem.op_count
        self.left = (1 << count) - 1
        before, after = closures(problem)
        self.blockers = [mask_of(x) for x in (problem.successors if reverse else problem.predecessors)]
        self.followers = problem.predecessors if reverse else problem.successors
        self.alloc = [0] * count
        self.extra = [op.workspace for op in problem.ops]
        self.always_dying = [0] * count
        self.maybe_dying: list[tuple[tuple[int, int], ...]] = []
        self.takeovers: list[tuple[tuple[int, Takeover], ...]] = []
        self.frozen = [False] * count
        whole = [mask_of(accessors) for accessors in problem.accessors]
        for op, record in enumerate(problem.ops):
            bit = 1 << op
            maybe: dict[int, int] = {}
            for storage in touched(record):
                spot = problem.storages[storage]
                if is_created_by(problem, storage, op):
                    self.alloc[op] += spot.nbytes
                if spot.resident or spot.output or whole[storage] & after[op] or not spot.nbytes:
                    continue
                others = whole[storage] & ~before[op] & ~bit
                if others:
                    maybe[others] = maybe.get(others, 0) + spot.nbytes
                else:
                    self.always_dying[op] += spot.nbytes
            self.maybe_dying.append(tuple(maybe.items()))
            self.takeovers.append(self._bound_takeovers(op, whole, before, after))
        for pairs in self.takeovers:
            for _, pair in pairs:
                for op in problem.accessors[pair.read] if reverse else ():
                    self.frozen[op] = True
        self.start_bytes = 0
        for storage, spot in enumerate(problem.storages):
            kept, from_start = spot.resident or spot.output, problem.from_start[storage]
            is_there = kept and (from_start or problem.accessors[storage]) if reverse else from_start
            if is_there and (kept or problem.accessors[storage]):
                self.start_bytes += spot.nbytes
        self.ready: Ready = tuple(op for op in range(count) if not self.blockers[op])

    def _bound_takeovers(
        self, op: int, whole: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> tuple[tuple[int, Takeover], ...]:
        """In-place pairs that depend on the order; those that never do are taken off `extra` once and for all."""
        pairs = [
            (whole[pair.read] & ~before[op] & ~(1 << op), pair)
            for pair in takeovers(self.problem, op)
            if not whole[pair.read] & after[op]
        ]
        if not any(others for others, _ in pairs):
            self.extra[op] -= shared_bytes([pair for _, pair in pairs])
            return ()
        return tuple(pairs)

    def move(self, left: int, nbytes: int, op: int) -> tuple[int, int]:
        """Bytes while a ready op runs, and bytes of the state that follows. O(storages of the op)."""
        dying = self.always_dying[op]
        if self.reverse:
            for others, size in self.maybe_dying[op]:
                if others & left == others:
                    dying += size
            hill = nbytes + dying + self.extra[op]
            following = nbytes + dying - self.alloc[op]
        else:
            for others, size in self.maybe_dying[op]:
                if not others & left:
                    dying += size
            hill = nbytes + self.alloc[op] + self.extra[op]
            following = nbytes + self.alloc[op] - dying
        if self.takeovers[op]:
            hill -= shared_bytes(
                [
                    pair
                    for others, pair in self.takeovers[op]
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


def closures(problem: OrderProblem) -> tuple[list[int], list[int]]:
    """For each op the sets of all ops that must run before it and after it. O(edges x ops / word)."""
    before = [0] * problem.op_count
    after = [0] * problem.op_count
    for op, earlier in enumerate(problem.predecessors):
        for other in earlier:
            before[op] |= before[other] | 1 << other
    for op in reversed(range(problem.op_count)):
        for other in problem.successors[op]:
            after[op] |= after[other] | 1 << other
    return before, after

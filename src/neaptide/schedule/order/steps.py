"""An ordering problem as steps: what each op adds and takes away whatever runs around it, and what is left over.

A storage whose last accessor is the same in every order is freed at a fixed step, so it only adds to one step and
takes from another. The rest are *couplings*: freed by whichever of several accessors happens to run last. Regions
without a coupling to the outside may be scheduled on their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import Takeover, is_created_by, shared_bytes, takeovers

EXACT_REACH_OPS = 6000
"""Up to here who reaches whom is held in bit sets (n^2 bits); beyond, paths are looked for up to a limit."""

_VISIT_LIMIT = 400


@dataclass(frozen=True, slots=True)
class Coupling:
    """Bytes freed by the last of several ops.

    Attributes:
        storage: which, in the problem; None for a pin: an op whose rise depends on the order (`in_place` of an operand
            with several last readers), or that makes or frees what such an op shares. It stays as it is.
        nbytes: its size; 0 for a pin.
        ops: the candidates, ascending, at least two (one for a pin); none is known to precede another.
    """

    storage: int | None
    nbytes: int
    ops: tuple[int, ...]

    @property
    def is_pin(self) -> bool:
        return self.storage is None


@dataclass(frozen=True, slots=True)
class Steps:
    """A problem, op by op.

    Attributes:
        rise: by op, highest bytes while it runs above those before it.
        delta: by op, bytes after it less bytes before it, couplings left out.
        start_bytes: what is there before the first op.
        couplings: storages without a fixed last accessor, and pins.
        freed_by: by storage, the op that frees it; None if nothing does or it is a coupling.
        predecessors: by op, direct ones, transitively reduced as far as `EXACT_REACH_OPS` allows.
    """

    rise: list[int]
    delta: list[int]
    start_bytes: int
    couplings: tuple[Coupling, ...]
    freed_by: list[int | None]
    predecessors: list[set[int]]


class _Reach:
    """Who is reached from whom; may answer no in very large problems."""

    def __init__(self, problem: OrderProblem) -> None:
        self._successors = problem.successors
        self._below: list[int] | None = None
        if problem.op_count <= EXACT_REACH_OPS:
            below = [0] * problem.op_count
            for op in range(problem.op_count - 1, -1, -1):
                mask = 0
                for after in problem.successors[op]:
                    mask |= below[after] | (1 << after)
                below[op] = mask
            self._below = below

    def reduced(self, op: int) -> list[int]:
        """Successors of an op that no longer path leads to."""
        successors = self._successors[op]
        if len(successors) < 2:
            return list(successors)
        if self._below is None:
            found = self._search(successors, successors[-1])
            return [other for other in successors if other not in found]
        covered, kept = 0, []
        for other in successors:
            if not covered >> other & 1:
                kept.append(other)
                covered |= self._below[other]
        return kept

    def last_of(self, ops: tuple[int, ...]) -> tuple[int, ...]:
        """Those that none of the others follows."""
        if len(ops) < 2:
            return ops
        if self._below is not None:
            mask = sum(1 << op for op in ops)
            return tuple(op for op in ops if not self._below[op] & mask)
        members = set(ops)
        return tuple(op for op in ops if not members & self._search((op,), ops[-1]))

    def _search(self, start: tuple[int, ...], until: int) -> set[int]:
        """Ops on paths from the given ones, themselves left out, no later than `until` in list order."""
        found: set[int] = set()
        stack = list(start)
        while stack and len(found) < _VISIT_LIMIT:
            for other in self._successors[stack.pop()]:
                if other <= until and other not in found:
                    found.add(other)
                    stack.append(other)
        return found


def to_steps(problem: OrderProblem) -> Steps:
    """Say of each op what it does in every order. O(size), plus n^2 bits up to `EXACT_REACH_OPS` ops."""
    reach = _Reach(problem)
    count = problem.op_count
    born = [0] * count
    freed = [0] * count
    freed_by: list[int | None] = [None] * len(problem.storages)
    pairs = _takeovers(problem)
    couplings: list[Coupling] = []
    start = 0
    for index, storage in enumerate(problem.storages):
        accessors = problem.accessors[index]
        kept = storage.resident or storage.output
        if problem.from_start[index]:
            start += storage.nbytes if kept or accessors else 0
        elif accessors:
            born[accessors[0]] += storage.nbytes
        if kept or not accessors:
            continue
        last = reach.last_of(accessors)
        if len(last) == 1:
            freed_by[index] = last[0]
            freed[last[0]] += storage.nbytes
        elif storage.nbytes:
            couplings.append(Coupling(index, storage.nbytes, last))
    rise = [born[op] + problem.ops[op].workspace for op in range(count)]
    for op, found in pairs.items():
        rise[op] -= shared_bytes([pair for pair in found if freed_by[pair.read] == op])
    couplings += [Coupling(None, 0, (op,)) for op in _pinned(problem, pairs, couplings, freed_by)]
    predecessors: list[set[int]] = [set() for _ in range(count)]
    for op in range(count):
        for other in reach.reduced(op):
            predecessors[other].add(op)
    delta = [gain - loss for gain, loss in zip(born, freed, strict=True)]
    return Steps(rise, delta, start, tuple(couplings), freed_by, predecessors)


def _takeovers(problem: OrderProblem) -> dict[int, tuple[Takeover, ...]]:
    found = {op: takeovers(problem, op) for op, record in enumerate(problem.ops) if record.in_place}
    return {op: pairs for op, pairs in found.items() if pairs}


def _pinned(
    problem: OrderProblem,
    pairs: dict[int, tuple[Takeover, ...]],
    couplings: list[Coupling],
    freed_by: list[int | None],
) -> list[int]:
    """Ops around every takeover that only some orders allow, and around those that share a storage with it."""
    candidates = {coupling.storage: coupling.ops for coupling in couplings}
    pinned: set[int] = set()
    stack = [op for op, found in pairs.items() if any(op in candidates.get(pair.read, ()) for pair in found)]
    while stack:
        op = stack.pop()
        if op in pinned:
            continue
        pinned.add(op)
        for pair in pairs.get(op, ()):
            for storage in (pair.written, pair.read):
                around = {born_at(problem, storage), freed_by[storage], *candidates.get(storage, ())}
                stack += [other for other in around if other is not None]
    return sorted(pinned)


def born_at(problem: OrderProblem, storage: int) -> int | None:
    """The op at which a storage comes into being; None if it is there from the start or never made."""
    accessors = problem.accessors[storage]
    return accessors[0] if accessors and is_created_by(problem, storage, accessors[0]) else None

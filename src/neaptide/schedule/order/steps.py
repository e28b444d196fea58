"""An ordering problem as every search sees it: what each op adds and takes away, whatever runs around it, and what is left over.

A storage whose last accessor is the same in every order is freed at a fixed step, so it only adds to one step and takes from
another. The rest are *couplings*: freed by whichever of several accessors happens to run last. Windows, regions and what a
reduction leaves are steps as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from neaptide.schedule.order.problem import OrderProblem, inverse
from neaptide.schedule.order.sharing import Takeover, created_bytes, shared_bytes, takeovers

EXACT_REACH_OPS = 6000
"""Up to here who reaches whom is held in bit sets (n^2 bits); beyond, paths are looked for up to a limit."""

_VISIT_LIMIT = 400


class Coupling(NamedTuple):
    """Bytes freed by the last of several ops, at least two, ascending; none is known to precede another.

    `storage` says which it is in the problem, for messages; -1 where there is none.
    """

    nbytes: int
    ops: tuple[int, ...]
    storage: int = -1


class MaybeTaken(NamedTuple):
    """A takeover that an op makes if it frees a coupling; in every order where that is None."""

    coupling: int | None
    takeover: Takeover


@dataclass(frozen=True, slots=True)
class Steps:
    """Ops with what they do to the bytes.

    Attributes:
        rise: highest bytes while an op runs above those before it, less what it takes over in every order.
        delta: bytes after an op less bytes before it, couplings left out.
        predecessors: direct ones, ascending, transitively reduced as far as `EXACT_REACH_OPS` allows.
        takeovers: of ops whose rise depends on the order, all of them; `rise` has none of those.
    """

    rise: tuple[int, ...]
    delta: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    couplings: tuple[Coupling, ...] = ()
    takeovers: Mapping[int, tuple[MaybeTaken, ...]] = field(default_factory=dict, hash=False)
    start_bytes: int = 0
    successors: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "successors", inverse(self.predecessors, len(self.predecessors)))

    @property
    def op_count(self) -> int:
        return len(self.rise)

    def bytes_after(self, downset: Iterable[int]) -> int:
        """Bytes between ops once a downset has run. O(size)."""
        done = frozenset(downset)
        freed = sum(coupling.nbytes for coupling in self.couplings if done.issuperset(coupling.ops))
        return self.start_bytes + sum(self.delta[op] for op in done) - freed

    def least_rise(self, op: int) -> int:
        """The rise of an op with all takeovers made."""
        return self.rise[op] - shared_bytes([maybe.takeover for maybe in self.takeovers.get(op, ())])

    def window(self, done: Iterable[int], ops: Sequence[int], *, relaxed: bool = False) -> Steps:
        """The steps of running some ops after all of `done` and before all others; op k is `ops[k]`. O(size).

        Args:
            ops: in a legal order, so that `done` and they together are a downset again.
            relaxed: count takeovers as made where the operand has readers after the window, so that hills are no
                higher than in any order that runs some of those readers earlier.
        """
        before = frozenset(done)
        position = {op: k for k, op in enumerate(ops)}
        rise, delta = [self.rise[op] for op in ops], [self.delta[op] for op in ops]
        couplings: list[Coupling] = []
        fate: dict[int, int | None] = {}  # its number here, None where its one candidate frees it for sure
        for index, (nbytes, candidates, storage) in enumerate(self.couplings):
            inside = [position[op] for op in candidates if op in position]
            if not inside or any(op not in position and op not in before for op in candidates):
                continue
            if len(inside) == 1:
                fate[index] = None
                delta[inside[0]] -= nbytes
            else:
                fate[index] = len(couplings)
                couplings.append(Coupling(nbytes, tuple(sorted(inside)), storage))
        taken = {}
        for op, k in position.items():
            pairs = self.takeovers.get(op, ())
            is_assumed = relaxed and any(c is not None and c not in fate for c, _ in pairs)
            left = [
                MaybeTaken(None if is_assumed or c is None else fate[c], pair)
                for c, pair in pairs
                if is_assumed or c is None or c in fate
            ]
            if all(maybe.coupling is None for maybe in left):
                rise[k] -= shared_bytes([maybe.takeover for maybe in left])
            else:
                taken[k] = tuple(left)
        return Steps(
            tuple(rise),
            tuple(delta),
            tuple(tuple(sorted(position[b] for b in self.predecessors[op] if b in position)) for op in ops),
            tuple(couplings),
            taken,
            self.bytes_after(before),
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """Bytes along an order of steps: while each op runs, and before each op and at the end."""

    bytes_at: tuple[int, ...]
    between: tuple[int, ...]

    @property
    def peak_bytes(self) -> int:
        return max((*self.bytes_at, self.between[0]))

    @property
    def peak_position(self) -> int | None:
        """Of the first highest one; None without ops."""
        return self.bytes_at.index(max(self.bytes_at)) if self.bytes_at else None


def profile(steps: Steps, order: Sequence[int]) -> Profile:
    """Play a legal order. O(size)."""
    position_of = {op: position for position, op in enumerate(order)}
    freed_by = [max(coupling.ops, key=position_of.__getitem__) for coupling in steps.couplings]
    change = [steps.delta[op] for op in order]
    for coupling, op in zip(steps.couplings, freed_by, strict=True):
        change[position_of[op]] -= coupling.nbytes
    between = tuple(accumulate(change, initial=steps.start_bytes))
    saved = {
        op: shared_bytes([pair for c, pair in pairs if c is None or freed_by[c] == op])
        for op, pairs in steps.takeovers.items()
    }
    hills = (before + steps.rise[op] - saved.get(op, 0) for before, op in zip(between, order, strict=False))
    return Profile(tuple(hills), between)


def to_steps(problem: OrderProblem) -> Steps:
    """Say of each op what it does in every order. O(size), plus n^2 bits up to `EXACT_REACH_OPS` ops."""
    reach = _Reach(problem)
    count = problem.op_count
    rise, freed = [created_bytes(problem, op) for op in range(count)], [0] * count
    delta = rise.copy()
    freed_by: dict[int, int] = {}  # by storage, where that is fixed
    coupled: dict[int, int] = {}
    couplings: list[Coupling] = []
    start = 0
    for index, storage in enumerate(problem.storages):
        accessors = problem.accessors[index]
        kept = storage.resident or storage.output
        if problem.from_start[index] and (kept or accessors):
            start += storage.nbytes
        if kept or not accessors:
            continue
        last = reach.last_of(accessors)
        if len(last) == 1:
            freed_by[index] = last[0]
            freed[last[0]] += storage.nbytes
        elif storage.nbytes:
            coupled[index] = len(couplings)
            couplings.append(Coupling(storage.nbytes, last, index))
    maybe = {}
    for op, record in enumerate(problem.ops):
        rise[op] += record.workspace
        pairs = [pair for pair in takeovers(problem, op) if freed_by.get(pair.read, op) == op]
        left = [MaybeTaken(coupled.get(pair.read), pair) for pair in pairs]
        left = [one for one in left if one.coupling is None or op in couplings[one.coupling].ops]
        if all(one.coupling is None for one in left):
            rise[op] -= shared_bytes([one.takeover for one in left])
        else:
            maybe[op] = tuple(left)
    delta = [gain - loss for gain, loss in zip(delta, freed, strict=True)]
    return Steps(tuple(rise), tuple(delta), reach.reduced_predecessors(), tuple(couplings), maybe, start)


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

    def reduced_predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Predecessors by op, ascending, without those that a longer path leads from."""
        count = len(self._successors)
        return inverse(map(self._reduced, range(count)), count)

    def _reduced(self, op: int) -> list[int]:
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

"""Bytes of an order: the plain evaluator that judges, and a state that moves op by op in constant time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from neaptide.errors import VerifyError
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import Takeover, is_created_by, shared_bytes, takeovers, touched


@dataclass(frozen=True, slots=True)
class OrderProfile:
    """Bytes while each op of an order runs.

    Attributes:
        peak_bytes: the highest of them; what is there from the start, if there are no ops.
        bytes_at: by position in the order, residents and workspace included.
        peak_position: of the first highest one; None without ops.
    """

    peak_bytes: int
    bytes_at: tuple[int, ...]
    peak_position: int | None


def evaluate_order(problem: OrderProblem, order: Sequence[int]) -> OrderProfile:
    """Play an order and count bytes at every op. O(accesses).

    Args:
        problem: storages and ops.
        order: op indices, each once.

    Raises:
        VerifyError: the order leaves an op out, repeats one or breaks a dependency.
    """
    check_order(problem, order)
    position_of = [0] * len(order)
    for position, op in enumerate(order):
        position_of[op] = position
    last: list[int] = []
    change = [0] * (len(order) + 1)
    at_rest = 0
    for storage, accessors in zip(problem.storages, problem.accessors, strict=True):
        index = len(last)
        kept = storage.resident or storage.output
        final = len(order) - 1 if kept else max((position_of[op] for op in accessors), default=-1)
        last.append(final)
        if kept and not accessors:
            at_rest += storage.nbytes  # there from the start or never: nothing writes it
        elif final >= 0:
            change[0 if problem.from_start[index] else position_of[accessors[0]]] += storage.nbytes
            change[final + 1] -= storage.nbytes
    if not order:
        return OrderProfile(at_rest, (), None)
    bytes_at = []
    for position, (op, alive) in enumerate(zip(order, accumulate(change[:-1]), strict=True)):
        dying = [pair for pair in takeovers(problem, op) if last[pair.read] == position]
        bytes_at.append(at_rest + alive + problem.ops[op].workspace - shared_bytes(dying))
    peak = max(bytes_at)
    return OrderProfile(peak, tuple(bytes_at), bytes_at.index(peak))


def check_order(problem: OrderProblem, order: Sequence[int]) -> None:
    """Says what is wrong with an order.

    Raises:
        VerifyError: names the op that is missing, repeated or too early.
    """
    position_of: dict[int, int] = {}
    for position, op in enumerate(order):
        if not 0 <= op < problem.op_count:
            raise VerifyError(f"there is no op {op} to order")
        if op in position_of:
            raise VerifyError(f"op {problem.ops[op].name} stands twice in the order")
        position_of[op] = position
    for op, before in enumerate(problem.predecessors):
        if op not in position_of:
            raise VerifyError(f"op {problem.ops[op].name} is missing from the order")
        for other in before:
            if other not in position_of or position_of[other] > position_of[op]:
                raise VerifyError(
                    f"op {problem.ops[op].name} stands before op {problem.ops[other].name}, which must run first"
                )


class DownsetState:
    """What has run so far, and what each ready op would do; moves by one op either way.

    Forwards it starts with nothing run. Reversed it starts at the end, and running an op means that it is the last
    of what is still to be placed. The bytes while an op runs belong to the transition, so they are the same in both
    directions. A move costs amortised O(accesses of the op); `hill` and `after` cost O(1), plus O(pairs) where the
    op has in-place pairs.

    Attributes:
        bytes: between ops, at this moment.
        ready: ops that may run now, as keys in the order in which they became ready.
        taken: ops run so far, in the order in which they were run.
    """

    def __init__(self, problem: OrderProblem, *, reverse: bool = False) -> None:
        self.problem = problem
        self.reverse = reverse
        self.taken: list[int] = []
        self._touched = [touched(op) for op in problem.ops]
        kept = [storage.resident or storage.output for storage in problem.storages]
        self._size = [storage.nbytes for storage in problem.storages]
        self._mortal = [not k for k in kept]
        self._alloc = [
            sum(self._size[s] for s in spots if is_created_by(problem, s, op))
            for op, spots in enumerate(self._touched)
        ]
        self._pairs: list[tuple[Takeover, ...]] = [takeovers(problem, op) for op in range(problem.op_count)]
        # Of each storage: accessors that run later in program time, and their sum, which names the last one.
        self._later = [0 if reverse else len(accessors) for accessors in problem.accessors]
        self._later_sum = [0 if reverse else sum(accessors) for accessors in problem.accessors]
        self._dying = [0] * problem.op_count  # bytes that would be freed behind the op if it ran now
        for storage, accessors in enumerate(problem.accessors):
            if self._mortal[storage]:
                for op in accessors if reverse else accessors[: len(accessors) == 1]:
                    self._dying[op] += self._size[storage]
        self._blockers = [len(x) for x in (problem.successors if reverse else problem.predecessors)]
        self._follow = problem.predecessors if reverse else problem.successors
        indices = range(problem.op_count)
        self.ready: dict[int, None] = {
            op: None for op in (reversed(indices) if reverse else indices) if not self._blockers[op]
        }
        self.bytes = 0
        for storage, accessors in enumerate(problem.accessors):
            from_start = problem.from_start[storage]
            if (kept[storage] and (reverse or from_start)) or (not reverse and from_start and accessors):
                self.bytes += self._size[storage]

    def hill(self, op: int) -> int:
        """Bytes while a ready op runs, if it runs now."""
        own = self._dying[op] if self.reverse else self._alloc[op]
        total = self.bytes + own + self.problem.ops[op].workspace
        pairs = self._pairs[op]
        return total - self._shared(pairs) if pairs else total

    def after(self, op: int) -> int:
        """Bytes between ops once a ready op has run (reversed: just before it, in program time)."""
        change = self._alloc[op] - self._dying[op]
        return self.bytes - change if self.reverse else self.bytes + change

    def alloc(self, op: int) -> int:
        """Bytes that come into being at an op."""
        return self._alloc[op]

    def dying(self, op: int) -> int:
        """Bytes that are freed behind a ready op, if it runs now; what it makes and nobody reads included."""
        return self._dying[op]

    def run(self, op: int) -> tuple[int, ...]:
        """Run a ready op. Returns the ops, ready or not, whose `dying` has changed."""
        self.bytes = self.after(op)
        del self.ready[op]
        self.taken.append(op)
        changed: list[int] = []
        for storage in self._touched[op]:
            if self.reverse:
                if self._later[storage] == 0 and self._mortal[storage]:
                    changed += self._add_to_all(storage, -self._size[storage], op)
                self._later[storage] += 1
                self._later_sum[storage] += op
            else:
                self._later[storage] -= 1
                self._later_sum[storage] -= op
                if self._later[storage] == 1 and self._mortal[storage]:
                    other = self._later_sum[storage]
                    self._dying[other] += self._size[storage]
                    changed.append(other)
        for other in self._follow[op]:
            self._blockers[other] -= 1
            if not self._blockers[other]:
                self.ready[other] = None
        return tuple(changed)

    def undo(self) -> int:
        """Take back the last op; returns it. It comes last in `ready`."""
        op = self.taken.pop()
        for other in self._follow[op]:
            if not self._blockers[other]:
                del self.ready[other]
            self._blockers[other] += 1
        for storage in self._touched[op]:
            if self.reverse:
                self._later[storage] -= 1
                self._later_sum[storage] -= op
                if self._later[storage] == 0 and self._mortal[storage]:
                    self._add_to_all(storage, self._size[storage], op)
            else:
                if self._later[storage] == 1 and self._mortal[storage]:
                    self._dying[self._later_sum[storage]] -= self._size[storage]
                self._later[storage] += 1
                self._later_sum[storage] += op
        self.ready[op] = None
        change = self._alloc[op] - self._dying[op]
        self.bytes = self.bytes + change if self.reverse else self.bytes - change
        return op

    def order(self) -> tuple[int, ...]:
        """The ops taken so far, in program time."""
        return tuple(reversed(self.taken)) if self.reverse else tuple(self.taken)

    def _add_to_all(self, storage: int, nbytes: int, but: int) -> list[int]:
        others = [op for op in self.problem.accessors[storage] if op != but]
        for other in others:
            self._dying[other] += nbytes
        return others

    def _shared(self, pairs: tuple[Takeover, ...]) -> int:
        alone = 0 if self.reverse else 1
        return shared_bytes([pair for pair in pairs if self._later[pair.read] == alone])

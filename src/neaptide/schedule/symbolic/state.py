"""What has run so far, and what each ready operation would do to the live bytes, as expressions."""

from __future__ import annotations

from neaptide.schedule.order.sharing import touched
from neaptide.schedule.symbolic.problem import SymbolicProblem
from neaptide.symbolic.relations import KnownSize
from neaptide.symbolic.size_expr import SizeExpr


class SymbolicState:
    """A prefix of an order, or (`reverse`) a suffix; the operations that may come next, and their memory impact.

    The same as `schedule.order.evaluate.DownsetState`, with expressions for bytes.
    """

    def __init__(self, problem: SymbolicProblem, *, reverse: bool = False) -> None:
        structure = problem.structure
        self.problem, self.reverse = problem, reverse
        self.taken: list[int] = []
        self._touched = [touched(op) for op in structure.ops]
        self._created = [problem.created(op) for op in range(structure.op_count)]
        self._mortal = [not (storage.resident or storage.output) for storage in structure.storages]
        # Accessors of each storage that are still to be placed, or (reversed) that have been.
        self._left = [set() if reverse else set(accessors) for accessors in structure.accessors]
        self._dying: list[dict[int, None]] = [{} for _ in structure.ops]
        for storage, accessors in enumerate(structure.accessors):
            if self._mortal[storage]:
                for op in accessors if reverse else accessors[: len(accessors) == 1]:
                    self._dying[op][storage] = None
        self._impact: dict[int, KnownSize] = {}
        self._blockers = [len(x) for x in (structure.successors if reverse else structure.predecessors)]
        self._follow = structure.predecessors if reverse else structure.successors
        indices = range(structure.op_count)
        self.ready: dict[int, None] = {
            op: None for op in (reversed(indices) if reverse else indices) if not self._blockers[op]
        }

    def allocated_minus_freed(self, op: int) -> KnownSize:
        """Bytes that an operation brings into being, less those that are freed behind it, if it is placed now."""
        impact = self._impact.get(op)
        if impact is None:
            allocated = self.problem.total(self._created[op])
            impact = self._impact[op] = allocated - self.problem.total(tuple(self._dying[op]))
        return impact

    def begun_minus_ended(self, op: int) -> int:
        """Storages whose life an operation begins, less those whose life it ends, if it is placed now."""
        return len(self._created[op]) - len(self._dying[op])

    def place(self, op: int) -> None:
        """Place a ready operation. O(what it touches)."""
        del self.ready[op]
        self.taken.append(op)
        for storage in self._touched[op]:
            left = self._left[storage]
            if self.reverse:
                if not left and self._mortal[storage]:  # it was the last to use it: no earlier one is
                    for other in self.problem.structure.accessors[storage]:
                        if other != op:
                            del self._dying[other][storage]
                            self._impact.pop(other, None)
                left.add(op)
            else:
                left.discard(op)
                if len(left) == 1 and self._mortal[storage]:
                    (last,) = left
                    self._dying[last][storage] = None
                    self._impact.pop(last, None)
        for other in self._follow[op]:
            self._blockers[other] -= 1
            if not self._blockers[other]:
                self.ready[other] = None

    def order(self) -> tuple[int, ...]:
        """The operations placed so far, in program time."""
        return tuple(reversed(self.taken)) if self.reverse else tuple(self.taken)


def bytes_saved(
    problem: SymbolicProblem,
    order: tuple[int, ...],
    evicted: int,
    subgraph: frozenset[int],
    consumer: int,
) -> SizeExpr:
    """Bytes that are free between two uses of a storage if it is evicted, and recomputed by a subgraph before the second.

    Its own bytes, less those of what the subgraph reads and does not make, where no one else keeps that alive until
    then. Negative where evicting costs more than it frees.

    Args:
        subgraph: the operations that run again.
        consumer: the operation before which they run; it is the next to use the storage.
    """
    structure = problem.structure
    position_of = {op: position for position, op in enumerate(order)}
    again = position_of[consumer]
    made = {storage for op in subgraph for storage in problem.created(op)}
    held: dict[int, None] = {}
    for op in sorted(subgraph):
        for storage in structure.ops[op].reads:
            record = structure.storages[storage]
            last = max(position_of[accessor] for accessor in structure.accessors[storage])
            if storage not in made and not record.resident and not record.output and last < again:
                held[storage] = None
    saved = problem.total((evicted,)) - problem.total(tuple(held))
    return problem.store.expression(saved)

"""List scheduling on symbolic sizes, as BladeDISC++ does (arXiv 2412.16985, section 2.2 and Algorithm 1), in both directions.

The text of the paper goes forward, from operations whose operands are there; its Algorithm 1 goes backward, from those
that make outputs. Of the ready operations the one with the least memory impact is placed; where two impacts cannot be
compared, the one that leads to shorter lifetimes by the topology of the graph.
"""

from __future__ import annotations

from dataclasses import replace

from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.steps import to_steps
from neaptide.schedule.symbolic.problem import SymbolicProblem
from neaptide.symbolic.relations import KnownSize, Order, SizeRelations


class SymbolicState(DownsetState):
    """What has run so far, and what each ready operation would do, in expressions for bytes.

    Each storage counts as one byte for `growth`: lives that an operation begins less those that it ends.
    """

    def __init__(self, problem: SymbolicProblem, *, reverse: bool = False) -> None:
        structure = problem.structure
        lives = tuple(replace(storage, nbytes=1) for storage in structure.storages)
        super().__init__(to_steps(replace(structure, storages=lives)), reverse=reverse)
        self._coupled = [problem.total((coupling.storage,)) for coupling in self.steps.couplings]
        coupled = {coupling.storage for coupling in self.steps.couplings}
        ends: list[list[int]] = [[] for _ in structure.ops]
        for index, storage in enumerate(structure.storages):
            accessors = structure.accessors[index]
            if accessors and index not in coupled and not (storage.resident or storage.output):
                ends[accessors[-1]].append(index)
        self._always = [
            problem.total(problem.created(op)) - problem.total(tuple(ends[op]))
            for op in range(structure.op_count)
        ]
        self._impact: dict[int, KnownSize] = {}

    def allocated_minus_freed(self, op: int) -> KnownSize:
        """Bytes that an operation brings into being, less those that are freed after it, if it is placed now."""
        impact = self._impact.get(op)
        if impact is None:
            impact = self._always[op]
            for coupling in self.frees(op):
                impact = impact - self._coupled[coupling]
            self._impact[op] = impact
        return impact

    def run(self, op: int) -> tuple[int, ...]:
        """Place a ready operation."""
        changed = super().run(op)
        for other in changed:
            self._impact.pop(other, None)
        return changed


class _Impacts:
    """Impacts by number, and what has been found of pairs of them: an order has few distinct ones."""

    def __init__(self, store: SizeRelations) -> None:
        self._store = store
        self._number: dict[KnownSize, int] = {}
        self._sizes: list[KnownSize] = []
        self._found: dict[tuple[int, int], Order | None] = {}

    def number(self, impact: KnownSize) -> int:
        found = self._number.get(impact)
        if found is None:
            found = self._number[impact] = len(self._sizes)
            self._sizes.append(impact)
        return found

    def compare(self, a: int, b: int) -> Order | None:
        if a == b:
            return "=="
        if (a, b) not in self._found:
            self._found[a, b] = self._store.compare_known(self._sizes[a], self._sizes[b])
        return self._found[a, b]


def list_order(problem: SymbolicProblem, *, reverse: bool = False) -> tuple[int, ...]:
    """The order of operations that list scheduling makes. O(operations x ready operations).

    Args:
        reverse: place the operations from the last to the first, as Algorithm 1 does.
    """
    state = SymbolicState(problem, reverse=reverse)
    impacts = _Impacts(problem.store)
    number: dict[int, tuple[KnownSize, int]] = {}

    def impact(op: int) -> int:
        size = state.allocated_minus_freed(op)
        known = number.get(op)
        if known is None or known[0] is not size:
            known = number[op] = (size, impacts.number(size))
        return known[1]

    def lifetimes(op: int) -> tuple[int, int]:
        begun = state.growth(op)
        return (-begun, -op) if reverse else (begun, op)

    while state.ready:
        ready = iter(state.ready)
        best = next(ready)
        for op in ready:
            found = impacts.compare(impact(op), impact(best))
            if (
                reverse and found is not None
            ):  # placed last of what is left, an op gives back what it allocates
                found = _TURNED[found]
            is_better = found in {"<", "<="}
            if is_better or (found in {None, "=="} and lifetimes(op) < lifetimes(best)):
                best = op
        state.run(best)
    return state.order()


_TURNED: dict[Order, Order] = {"<": ">", "<=": ">=", "==": "==", ">=": "<=", ">": "<"}

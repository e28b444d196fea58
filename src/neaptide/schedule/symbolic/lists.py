"""List scheduling on symbolic sizes, as BladeDISC++ does (arXiv 2412.16985, section 2.2 and Algorithm 1), in both directions.

The text of the paper goes forward, from operations whose operands are there; its Algorithm 1 goes backward, from those
that make outputs. Of the ready operations the one with the least memory impact is placed; where two impacts cannot be
compared, the one that leads to shorter lifetimes by the topology of the graph.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from neaptide.schedule.order.heuristics import DownsetState
from neaptide.schedule.order.steps import to_steps
from neaptide.schedule.symbolic.problem import SymbolicProblem
from neaptide.symbolic.relations import KnownSize


class SymbolicState(DownsetState):
    """What has run so far, and what each ready operation would do, in expressions for bytes.

    Each storage counts as one byte for `growth`: lives that an operation begins less those that it ends.
    """

    def __init__(self, problem: SymbolicProblem, *, reverse: bool = False) -> None:
        structure = problem.structure
        lives = tuple(replace(storage, nbytes=1) for storage in structure.storages)
        super().__init__(to_steps(replace(structure, storages=lives)), reverse=reverse)
        sizes = list(map(problem.store.known, problem.sizes))
        self._coupled = [sizes[coupling.storage] for coupling in self.steps.couplings]
        coupled = {coupling.storage for coupling in self.steps.couplings}
        self._always = [problem.store.of_coefficients({})] * structure.op_count
        for index, (storage, accessors) in enumerate(
            zip(structure.storages, structure.accessors, strict=True)
        ):
            if accessors and not structure.from_start[index]:
                self._always[accessors[0]] = self._always[accessors[0]] + sizes[index]
            if accessors and index not in coupled and not (storage.resident or storage.output):
                self._always[accessors[-1]] = self._always[accessors[-1]] - sizes[index]
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


def list_order(problem: SymbolicProblem, *, reverse: bool = False) -> tuple[int, ...]:
    """The order of list scheduling; reversed, from the last operation as in Algorithm 1. O(operations x width)."""
    state = SymbolicState(problem, reverse=reverse)
    compare = cache(problem.store.compare_known)  # an order has few distinct impacts

    def lifetimes(op: int) -> tuple[int, int]:
        begun = state.growth(op)
        return (-begun, -op) if reverse else (begun, op)

    def is_better(op: int, best: int) -> bool:
        impact, least = state.allocated_minus_freed(op), state.allocated_minus_freed(best)
        order = "==" if impact is least else compare(impact, least)
        if order is None or order == "==":
            return lifetimes(op) < lifetimes(best)
        # Placed last of what is left, an operation gives back what it allocates.
        return (order in {">", ">="}) if reverse else (order in {"<", "<="})

    while state.ready:
        best, *others = state.ready
        for op in others:
            if is_better(op, best):
                best = op
        state.run(best)
    return state.order()

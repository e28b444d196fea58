"""List scheduling on symbolic sizes, as BladeDISC++ does (arXiv 2412.16985, section 2.2 and Algorithm 1), in both directions.

The text of the paper goes forward, from operations whose operands are there; its Algorithm 1 goes backward, from those
that make outputs. Of the ready operations the one with the least memory impact is placed; where two impacts cannot be
compared, the one that leads to shorter lifetimes by the topology of the graph.
"""

from __future__ import annotations

from neaptide.schedule.symbolic.problem import SymbolicProblem
from neaptide.schedule.symbolic.state import SymbolicState
from neaptide.symbolic.relations import KnownSize, Order, SizeRelations


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
        begun = state.begun_minus_ended(op)
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
        state.place(best)
    return state.order()


_TURNED: dict[Order, Order] = {"<": ">", "<=": ">=", "==": "==", ">=": "<=", ">": "<"}

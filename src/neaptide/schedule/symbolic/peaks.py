"""Bytes at every operation of an order, as expressions, and the few of them that may be its peak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from neaptide.schedule.order.evaluate import check_order
from neaptide.schedule.symbolic.problem import SymbolicProblem
from neaptide.symbolic.relations import KnownSize, SizeRelations
from neaptide.symbolic.size_expr import SizeExpr

# Shares that are tried, in thousandths: what is proved is one of them.
_LADDER: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class SymbolicPeak:
    """The peak of an order: at every shape the largest of a few expressions.

    Attributes:
        known: the expressions in the form of the store; none is proved to be at most another at every shape.
    """

    known: tuple[KnownSize, ...]
    store: SizeRelations
    sizes: tuple[SizeExpr, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(map(self.store.expression, self.known)))

    def evaluate(self, binding: Mapping[str, int]) -> int:
        """The peak in bytes at a shape.

        Raises:
            SymbolicError: a dim does not follow from the binding, or is outside its range.
        """
        full = self.store.binding(binding)
        return max(size.evaluate(full) for size in self.sizes)

    @property
    def samples(self) -> tuple[int, ...]:
        """The peak in bytes at the sample shapes of the store."""
        return tuple(map(max, zip(*(known.samples for known in self.known), strict=True)))


def symbolic_bytes_at(problem: SymbolicProblem, order: Sequence[int]) -> tuple[KnownSize, ...]:
    """Bytes while each operation of an order runs, residents and workspace included. O(accesses x terms).

    Raises:
        VerifyError: the order leaves an operation out, repeats one or breaks a dependency.
    """
    structure = problem.structure
    check_order(structure, order)
    position_of = {op: position for position, op in enumerate(order)}
    nothing = problem.total(())
    begin: list[list[int]] = [[] for _ in order]
    end: list[list[int]] = [[] for _ in order]
    alive = nothing
    for index, (storage, accessors) in enumerate(zip(structure.storages, structure.accessors, strict=True)):
        is_kept = storage.resident or storage.output
        if structure.from_start[index]:
            if is_kept or accessors:
                alive = alive + problem.total((index,))
        elif accessors:
            begin[position_of[accessors[0]]].append(index)
        elif is_kept:
            alive = alive + problem.total((index,))
        if not is_kept and accessors:
            end[max(position_of[op] for op in accessors)].append(index)
    found = []
    for position, op in enumerate(order):
        alive = alive + problem.total(tuple(begin[position]))
        found.append(alive + problem.store.known(problem.workspace[op]))
        alive = alive - problem.total(tuple(end[position]))
    return tuple(found)


def peak_of_order(problem: SymbolicProblem, order: Sequence[int]) -> SymbolicPeak:
    """The peak of an order. O(accesses x terms + distinct sizes x expressions that are left).

    Raises:
        VerifyError: the order leaves an operation out, repeats one or breaks a dependency.
    """
    sizes = symbolic_bytes_at(problem, order) or (_at_rest(problem),)
    return SymbolicPeak(largest(problem.store, sizes), problem.store)


def largest(store: SizeRelations, sizes: Iterable[KnownSize]) -> tuple[KnownSize, ...]:
    """Sizes of which one is the largest at every shape: without those that are proved to be at most another."""
    distinct = dict.fromkeys(sizes)
    kept: list[KnownSize] = []
    for size in sorted(distinct, key=lambda size: size.samples, reverse=True):
        if not any(store.compare_known(size, other) in {"<", "<=", "=="} for other in kept):
            kept = [other for other in kept if store.compare_known(other, size) not in {"<", "<="}]
            kept.append(size)
    return tuple(kept)


def proved_excess(
    store: SizeRelations, peak: Sequence[KnownSize], others: Sequence[KnownSize]
) -> Fraction | None:
    """The least share that is proved: for every shape one peak is at most `1 + share` times another; None without proof.

    It is where every expression of one is at most `1 + share` times some expression of the other.
    """
    left = list(peak)
    for thousandths in _LADDER:
        raised = [size * (1000 + thousandths) for size in others]
        left = [size for size in left if not _is_covered(store, size * 1000, raised)]
        if not left:
            return Fraction(thousandths, 1000)
    return None


def _is_covered(store: SizeRelations, size: KnownSize, others: Sequence[KnownSize]) -> bool:
    return any(store.compare_known(size, other) in {"<", "<=", "=="} for other in others)


def _at_rest(problem: SymbolicProblem) -> KnownSize:
    """What is there without any operation."""
    kept = (
        index
        for index, storage in enumerate(problem.structure.storages)
        if storage.resident or storage.output
    )
    return problem.total(tuple(kept))

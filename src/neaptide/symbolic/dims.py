"""What is known of the named dimensions of a graph: their ranges, and equalities between sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from neaptide.errors import SymbolicError
from neaptide.symbolic.size_expr import SizeExpr


@dataclass(frozen=True, slots=True)
class Dim:
    """A named dimension with the sizes that it may have, in elements; both ends are included."""

    name: str
    low: int = 0
    high: int | None = None

    def __contains__(self, number: int) -> bool:
        return number >= self.low and (self.high is None or number <= self.high)

    def __str__(self) -> str:
        return f"{self.name} in {self.low}..{'' if self.high is None else self.high}"


@dataclass(frozen=True, slots=True)
class Relation:
    """An equality between two sizes, such as `S0 == 12*S1`; it holds for every shape that the graph is run on."""

    left: SizeExpr
    right: SizeExpr

    def dims(self) -> frozenset[str]:
        """Names of the dimensions that it ties together."""
        return self.left.dims() | self.right.dims()

    def __str__(self) -> str:
        return f"{self.left} == {self.right}"


def bound_dims(dims: Iterable[Dim], binding: Mapping[str, int]) -> tuple[Dim, ...]:
    """The dims that a binding leaves open."""
    left = []
    for dim in dims:
        number = binding.get(dim.name)
        if number is None:
            left.append(dim)
        elif number not in dim:
            raise SymbolicError(
                f"{dim.name} = {number} is outside its range",
                why=f"the program holds for {dim}",
                next_step="capture it for a wider range, or run another size",
            )
    return tuple(left)


def bound_relations(relations: Iterable[Relation], binding: Mapping[str, int]) -> tuple[Relation, ...]:
    """The relations that still say something under a binding."""
    left = []
    for relation in relations:
        now = Relation(relation.left.substitute(binding), relation.right.substitute(binding))
        difference = now.left - now.right
        if not difference.is_constant:
            left.append(now)
        elif difference.constant_value():
            values = ", ".join(f"{name} = {binding[name]}" for name in sorted(relation.dims() & set(binding)))
            raise SymbolicError(f"{values} break {relation}", why="the program holds for sizes that keep it")
    return tuple(left)

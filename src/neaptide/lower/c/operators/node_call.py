"""A node with its operands as C sees them: what the writer of an operator is handed; and the row of an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from neaptide.errors import LoweringError
from neaptide.ir.values import DTYPE_WORDS
from neaptide.lower.c.code import Code, copy, element_wise
from neaptide.lower.c.views import View, product

Numbers: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class NodeCall:
    """One call of an operator.

    Attributes:
        operands: by position; None for an absent one.
        results: by position; None for one that nobody asked for.
        constants: by position, the numbers of an operand that is known when the file is written.
    """

    code: Code
    op: str
    version: int
    operands: tuple[View | None, ...]
    results: tuple[View | None, ...]
    attributes: Mapping[str, Any]
    constants: tuple[Numbers | None, ...]

    def has(self, position: int) -> bool:
        return position < len(self.operands) and self.operands[position] is not None

    def x(self, position: int = 0) -> View:
        view = self.operands[position] if position < len(self.operands) else None
        if view is None:
            raise self.refusal(f"has no operand {position}")
        return view

    def y(self, position: int = 0) -> View:
        view = self.results[position]
        if view is None:
            raise self.refusal(f"has no result {position}")
        return view

    def has_result(self, position: int) -> bool:
        return position < len(self.results) and self.results[position] is not None

    def number(self, name: str, default: float = 0) -> float:
        return float(self.attributes.get(name, default))

    def integer(self, name: str, default: int = 0) -> int:
        return int(self.attributes.get(name, default))

    def integers(self, name: str, default: Sequence[int] = ()) -> list[int]:
        return [int(item) for item in self.attributes.get(name, default)]

    def text(self, name: str, default: str = "") -> str:
        return str(self.attributes.get(name, default))

    def axis(self, default: int = 0, rank: int | None = None) -> int:
        """The attribute `axis`, counted from the begin."""
        rank = len(self.x().dims) if rank is None else rank
        axis = self.integer("axis", default)
        return axis + rank if axis < 0 else axis

    def known(self, position: int) -> Numbers | None:
        """The numbers of an operand; None where it is absent, a refusal where they are only known when it runs."""
        if not self.has(position):
            return None
        found = self.constants[position]
        if found is None:
            raise self.refusal(
                f"has an operand {position} that is computed", "the C target needs its numbers"
            )
        return found

    def known_integers(self, position: int) -> list[int] | None:
        found = self.known(position)
        return None if found is None else [int(item) for item in found.reshape(-1).tolist()]

    def refusal(self, what: str, why: str | None = None) -> LoweringError:
        return LoweringError(f"{self.op} {what}", why=why, next_step="plan this model for another target")

    def tokens(self, view: View) -> dict[str, str]:
        """What a kernel of one element type is filled in with."""
        return {"X": DTYPE_WORDS[view.dtype], "T": view.c_type, "F": "" if view.dtype == "float64" else "f"}

    def map(self, expression: str, operands: Sequence[View], *scalars: float, name: str = "") -> None:
        element_wise(self.code, name or self.op.lower(), expression, operands, self.y(), *scalars)

    def copy(self, source: View, target: View) -> None:
        copy(self.code, source, target)

    def three_axes(self, axis: int) -> tuple[int, int, int]:
        """Elements before, along and after an axis of operand 0."""
        dims = self.x().dims
        return product(dims[:axis]), dims[axis], product(dims[axis + 1 :])


def typed(view: View | None, *, written: bool = False) -> str:
    """A pointer of the element's type; a null pointer for an absent tensor."""
    if view is None:
        return "0"
    return f"({'' if written else 'const '}{view.c_type} *)({view.place.text})"


Emit: TypeAlias = Callable[[NodeCall], None]


@dataclass(frozen=True, slots=True)
class Row:
    """How an operator is written.

    Attributes:
        in_place: operands that result 0 may lie on: each element is read before it is written, and never again.
        dense: its kernel takes row-major tensors only; all others take any strides.
        views: results as views of operand 0, where it moves nothing but the frame that is looked through.
        parts: where in result 0 each operand goes, for an operator that only joins them.
    """

    emit: Emit
    in_place: tuple[int, ...] = ()
    dense: bool = False
    views: Callable[[NodeCall], list[View]] | None = None
    parts: Callable[[NodeCall], list[View]] | None = None

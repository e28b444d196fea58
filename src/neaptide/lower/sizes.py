"""Sizes as Python text: numbers, or expressions in what is known only as the program runs."""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.errors import LoweringError
from neaptide.ir.nodes import Node
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.symbolic.terms import Atom, Monomial

_OPERATORS = {"floordiv": "//", "mod": "%"}


def size_text(size: SizeExpr | int, dims: Mapping[str, str], node: Node | None = None) -> str:
    """A size as an expression over variables. O(terms).

    Args:
        dims: variable of each dimension that the function knows.

    >>> part = SizeExpr.dim("part")
    >>> size_text(part * part * 2 - 3, {"part": "n"}), size_text(part // 4, {"part": "n"}), size_text(7, {})
    ('2 * n * n + -3', '(n // 4)', '7')
    """
    if isinstance(size, int):
        return str(size)
    if size.is_constant:
        return str(size.constant_value())
    unknown = size.dims() - dims.keys()
    if unknown:
        raise LoweringError(
            f"the size {size} is not a number",
            where=(node.source.location or None) if node is not None else None,
            next_step="bind all dimensions that no input tells before lowering",
        )
    return " + ".join(_term(monomial, factor, dims) for monomial, factor in size.terms())


def _term(monomial: Monomial, factor: int, dims: Mapping[str, str]) -> str:
    factors = [_atom(atom, dims) for atom, power in monomial for _ in range(power)]
    if factor != 1 or not factors:
        factors.insert(0, str(factor))
    return " * ".join(factors)


def _atom(atom: Atom, dims: Mapping[str, str]) -> str:
    if not atom.function:
        return dims[atom.text]
    left, right = (size_text(argument, dims) for argument in atom.arguments)
    if atom.function == "max":
        return f"max({left}, {right})"
    return f"({grouped(left)} {_OPERATORS[atom.function]} {grouped(right)})"


def grouped(text: str) -> str:
    """An expression as a factor."""
    return f"({text})" if " " in text else text

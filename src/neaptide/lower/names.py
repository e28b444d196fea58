"""Names in generated code: values keep theirs, and nothing that the code itself needs is shadowed."""

from __future__ import annotations

import keyword
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping

from neaptide.errors import LoweringError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.symbolic.terms import Atom, Monomial

_OWN = frozenset({"torch", "args", "watched", "program", "range", "min", "max", "float"})
_NOT_IN_NAMES = re.compile(r"\W+")


class Names:
    """Hands out names for one program; the functions of its loops share them."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {value.name for value in _values(graph)} | _OWN | set(keyword.kwlist)
        self._fresh: dict[Hashable, str] = {}
        self._variables: dict[str, str] = {}
        self._held: dict[int, str] = {}

    def hold(self, name: str, values: Iterable[int]) -> None:
        """From here on some values of the graph live in a list of that name, by their id."""
        self._held = {value: f"{name}[{value}]" for value in values}

    def variable(self, value: Value) -> str:
        """The variable that holds a value: its own name, unless Python or the program needs that."""
        name = self._held.get(value.id) or self._variables.get(value.name)
        if name is None:
            name = value.name
            if name in _OWN or keyword.iskeyword(name):
                name = self._untaken(f"{name}_")
            self._variables[value.name] = name
        return name

    def fresh(self, base: str, key: Hashable = None) -> str:
        """A name like `base` that no value has; the same again for the same base and key."""
        found = self._fresh.get((base, key))
        if found is None:
            found = self._fresh[base, key] = self._untaken(_NOT_IN_NAMES.sub("_", base))
        return found

    def _untaken(self, base: str) -> str:
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.values
    for node in graph.nodes:
        for loop in node.regions:
            yield from _values(loop.body)


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

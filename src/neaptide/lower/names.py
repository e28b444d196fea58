"""Names in generated code: values keep theirs, and nothing that the code itself needs is shadowed."""

from __future__ import annotations

import keyword
import re
from collections.abc import Hashable, Iterator

from neaptide.ir.graph import Graph
from neaptide.ir.values import Value

_OWN = frozenset({"torch", "args", "watched", "program", "range", "min", "max", "float"})
_NOT_IN_NAMES = re.compile(r"\W+")


class Names:
    """Hands out names for one program; the functions of its loops share them."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {value.name for value in _values(graph)} | _OWN | set(keyword.kwlist)
        self._fresh: dict[Hashable, str] = {}
        self._variables: dict[str, str] = {}

    def variable(self, value: Value) -> str:
        """The variable that holds a value: its own name, unless Python or the program needs that."""
        name = self._variables.get(value.name)
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

"""Names of values in a written file: those of the file that was read, and new ones beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from neaptide.ir.graph import Graph


class Names:
    """Unique names; the first to ask for one has it."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name, or the name with a number. O(1) on average."""
        chosen = name
        while chosen in self._taken:
            self._numbers[name] = self._numbers.get(name, 0) + 1
            chosen = f"{name}_{self._numbers[name]}"
        self._taken.add(chosen)
        return chosen


def value_names(
    graph: Graph, known: Mapping[str, str], output_names: Iterable[str]
) -> tuple[dict[int, str], list[tuple[int, str]]]:
    """Names of all values of a graph: inputs and outputs keep those of the user.

    Args:
        known: names in the file that was read, by name of the graph's value.
        output_names: names of the graph's outputs, in order.

    Returns:
        Names by value; and outputs that need a copy, as value and name, since the value has another name already.
    """
    outputs = list(output_names)
    found = {value: known.get(graph.values[value].name, graph.values[value].name) for value in graph.inputs}
    names = Names((*found.values(), *outputs))
    copies = []
    for value, name in zip(graph.outputs, outputs, strict=True):
        if found.setdefault(value, name) != name:
            copies.append((value, name))
    for made in graph.values:
        if made.id not in found:
            found[made.id] = names.unique(known.get(made.name, made.name))
    return found, copies

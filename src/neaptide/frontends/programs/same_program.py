"""Whether two captures are one program but for numbers: one has them as inputs, the other as constants.

A Python float that is traced as a symbol is no `float` any more. Code that asks for its type, or catches the error of
a comparison, takes another branch then, in silence. The capture with plain numbers took the right one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref
from neaptide.ops.structural import HOST_FUNCTIONS, host_function

Token = tuple[Any, ...]


def is_same_but_for_numbers(
    symbolic: Graph,
    numbers: Mapping[str, float],
    concrete: Graph,
    written: Mapping[int, float] = MappingProxyType({}),
) -> bool:
    """Whether the first graph is the second when its inputs of those names hold those numbers. O(size).

    Args:
        symbolic: takes the numbers as host scalars.
        numbers: by name of the input value.
        concrete: has them as constants.
        written: by position, outputs of the first graph that are numbers and that the second does not have.
    """
    first = _Listing(symbolic, numbers)
    second = _Listing(concrete, {})
    expected = iter(second.outputs)
    count = len(symbolic.outputs)
    outputs = [("number", written[k]) if k in written else next(expected, None) for k in range(count)]
    return first.rows == second.rows and first.outputs == outputs and next(expected, None) is None


def folded_outputs(graph: Graph, numbers: Mapping[str, float]) -> list[Token]:
    """What a graph gives when its inputs of those names hold those numbers: `("number", n)` where that is a number. O(size)."""
    return _Listing(graph, numbers).outputs


class _Listing:
    """A graph as comparable rows, host arithmetic on known numbers folded away."""

    def __init__(self, graph: Graph, numbers: Mapping[str, float]) -> None:
        self._graph = graph
        self._token: dict[int, Token] = {}
        self.rows: list[Token] = []
        for value in graph.inputs:
            name = graph.values[value].name
            self._token[value] = ("number", numbers[name]) if name in numbers else ("input", name)
        for node in graph.nodes:
            self._list(node)
        self.outputs = [self._token[value] for value in graph.outputs]

    def _list(self, node: Node) -> None:
        args = tuple(self._of(arg, node) for arg in node.args)
        if node.op in HOST_FUNCTIONS and all(arg[0] == "number" for arg in args):
            result = host_function(node.op)(*(arg[1] for arg in args))
            self._token[node.outputs[0]] = ("number", result)
            return
        kwargs = tuple((key, self._of(arg, node)) for key, arg in node.kwargs)
        made = tuple(
            (v.dtype, v.shape, v.strides, v.offset) for v in map(self._graph.values.__getitem__, node.outputs)
        )
        for position, value in enumerate(node.outputs):
            self._token[value] = ("made", len(self.rows), position)
        self.rows.append((node.op, args, kwargs, made, node.effects.rng))

    def _of(self, arg: Arg, node: Node) -> Token:
        if isinstance(arg, Ref):
            return self._token[node.inputs[arg.slot]]
        if isinstance(arg, tuple):
            return ("list", *(self._of(item, node) for item in arg))
        if isinstance(arg, (int, float)) and not isinstance(arg, bool):
            return ("number", arg)
        return ("constant", arg)

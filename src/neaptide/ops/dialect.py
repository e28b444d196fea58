"""Dialects: what rules insert into a graph, in the words of the namespace of its operations.

A rule finds its places by traits and axes. Where it has to join, cut, turn or add, it asks the dialect of the graph, which
knows the operation and its arguments, and whether the result has bytes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from neaptide.errors import RewriteError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg, Node, Ref, operand_values
from neaptide.ir.registry import Trait
from neaptide.ir.values import Kind

EXACT: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "bfloat16": frozenset({"float32", "float64"}),
        "float16": frozenset({"float32", "float64"}),
        "float32": frozenset({"float64"}),
    }
)
"""By dtype those that hold each of its numbers, so that a cast there and back changes no bit."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """An operation that a rule inserts.

    Attributes:
        kwargs: its arguments by keyword.
        args: arguments by position, after its operands.
        lists: operands after those that the rule hands over: lists of whole numbers, each made by `Dialect.numbers`.
        is_listed: its operands are one list.
        is_view: its result shows bytes of its first operand.
        is_onto: its result overwrites its first operand.
    """

    op: str
    kwargs: tuple[tuple[str, Arg], ...] = ()
    args: tuple[Arg, ...] = ()
    lists: tuple[tuple[int, ...], ...] = ()
    is_listed: bool = False
    is_view: bool = False
    is_onto: bool = False

    @staticmethod
    def again(node: Node, **kwargs: Arg) -> Inserted:
        """The operation of a node, with some of its keywords changed: its operands (`operands_of`) are handed over."""
        return Inserted(
            node.op, tuple(sorted({**dict(node.kwargs), **kwargs}.items())), node.args[_operand_count(node) :]
        )


def _operand_count(node: Node) -> int:
    """Arguments to the last one that is a tensor."""
    return max((place + 1 for place, arg in enumerate(node.args) if isinstance(arg, Ref)), default=0)


def operands_of(node: Node) -> list[int | None]:
    """The values that a node is called with by position, to the last tensor; None where there is no tensor."""
    return operand_values(node)[: _operand_count(node)]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What is inserted into a graph of one namespace.

    Attributes:
        kind: of storages that are made.
        joined_dim: along which dim a node joins its operands; None where it joins none, or not these alone.
        join: joins its operands along a dim.
        cut: elements from `begin` to before `end` of a dim of its operand.
        turn: its operand with the dims in an order.
        add: the sum of two operands.
        summed: traits of operations whose parts along what they add up may be added, with an addend in the first alone.
        kept: traits of operations that may run on pieces of a join in front of these.
        numbers: makes a tensor of whole numbers (int64) of nothing; None where such lists are arguments.
        has_loops: whether regions run in parts as loops (`neaptide.loop`); else parts are nodes of their own. Runtimes of
            models run a body as a session of its own, outside the memory plan, and parts of a model are few.
    """

    kind: Kind
    joined_dim: Callable[[Node], int | None]
    join: Callable[[int], Inserted]
    cut: Callable[[int, int, int], Inserted]
    turn: Callable[[tuple[int, ...]], Inserted]
    add: Inserted
    summed: frozenset[Trait]
    kept: frozenset[Trait] = frozenset()
    numbers: Callable[[tuple[int, ...]], Inserted] | None = None
    has_loops: bool = False


def dialect_of(graph: Graph) -> Dialect:
    """The dialect of a graph, by the namespaces of its operations. O(nodes), once for a graph.

    Raises:
        RewriteError: its operations are of a namespace into which rules insert nothing.
    """
    from neaptide.ops.aten.dialect import ATEN
    from neaptide.ops.onnx.dialect import ONNX

    spaces = graph.remembered(_namespaces)
    if "tflite" in spaces:
        raise RewriteError("it holds operators of TensorFlow Lite, and rules insert none of these")
    return ONNX if spaces & {"onnx", "com_microsoft"} else ATEN


def _namespaces(graph: Graph) -> frozenset[str]:
    return frozenset(node.op.partition(".")[0] for node in graph.nodes)

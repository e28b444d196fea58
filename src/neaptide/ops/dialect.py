"""Dialects: what rules insert into a graph, in the words of the namespace of its operations.

A rule finds its places by traits and axes. Where it has to join, cut or add, it asks the dialect of the graph, which knows
the operator, its attributes, and which operands are lists of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neaptide.errors import RewriteError
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg


@dataclass(frozen=True, slots=True)
class Inserted:
    """An operation that a rule inserts.

    Attributes:
        kwargs: its attributes, in the order of their names.
        lists: operands behind those that the rule hands over: lists of whole numbers, each made by `Dialect.numbers`.
    """

    op: str
    kwargs: tuple[tuple[str, Arg], ...] = ()
    lists: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """What is inserted into a graph of one namespace.

    Attributes:
        operator: an operator by its name in the namespace, with attributes by keyword.
        join: joins its operands along an axis.
        cut: elements from `begin` to before `end` along an axis of its operand.
        split: cuts its operand into parts of some lengths along an axis, one result for each.
        drop: takes a dim of one element away.
        numbers: makes a tensor of whole numbers (int64) of nothing.
    """

    namespace: str
    operator: Callable[..., Inserted]
    join: Callable[[int], Inserted]
    cut: Callable[[int, int, int], Inserted]
    split: Callable[[int, tuple[int, ...]], Inserted]
    drop: Callable[[int], Inserted]
    numbers: Callable[[tuple[int, ...]], Inserted]


def loops_hold(op: str) -> bool:
    """Whether an operation may stand in the body of a loop: what that inserts at the edges of parts is of ATen.

    >>> loops_hold("aten.relu.default"), loops_hold("onnx.Relu.14")
    (True, False)
    """
    return not op.startswith(("onnx.", "com_microsoft."))


def dialect_of(graph: Graph) -> Dialect:
    """The dialect of a graph, by its operations. O(nodes), once for a graph.

    Raises:
        RewriteError: its operations are of a namespace whose operators passes do not insert.
    """
    return graph.remembered(_dialect_of)


def _dialect_of(graph: Graph) -> Dialect:
    from neaptide.ops.onnx.dialect import ONNX

    if not any(node.op.startswith("onnx.") for node in graph.nodes):
        raise RewriteError("it holds no operators of ONNX, and passes insert none of another namespace")
    return ONNX

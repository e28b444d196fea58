"""What moves or casts elements moves itself: transpositions meet and cancel, casts go where there is less to move, and what
hands on its operand as it is goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ir.values import DTYPE_BYTES
from neaptide.ops.axes.forms import numbers
from neaptide.ops.dialect import EXACT, Inserted, operands_of
from neaptide.ops.onnx.facts import MOVEMENTS, SAME_IF_ALONE, SAME_IF_SHAPED
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.drafting import Drafting, Shape
from neaptide.transform.node_rule import node_rule, operand_at
from neaptide.transform.passes.patterns import Patterns

_ONE: Final = SizeExpr.const(1)
_Order = tuple[int, ...]


def _order(graph: Graph, node: Node) -> _Order:
    """The dims of its operand in the order in which a transposition has them."""
    rank = len(graph.values[node.outputs[0]].shape)
    return numbers(node.kwarg("perm")) or tuple(reversed(range(rank)))


@dataclass(frozen=True, slots=True)
class _Transposes:
    """Two transpositions with operations of single elements between them; `order` is that of both together."""

    first: Node
    between: tuple[Node, ...]
    order: _Order


class _Meetings:
    """Which transpositions meet another."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.at, self.graph = Patterns(graph, registry), graph

    def of(self, node: Node) -> _Transposes | str | None:
        """The transposition that one meets; why it meets none; None where it is none."""
        at = self.at
        if not at.is_a(node, "Transpose") or node.outputs[0] in at.weights:
            return None
        between: list[Node] = []
        maker = at.only_maker(operand_at(node, 0))
        while maker is not None and self._is_single(maker):
            between.append(maker)
            maker = at.only_maker(operand_at(maker, 0))
        if maker is None or not at.is_a(maker, "Transpose"):
            return "no other of its own is in front of it"
        first, second = _order(self.graph, maker), _order(self.graph, node)
        order = tuple(first[dim] for dim in second)
        is_plain = order == tuple(range(len(order)))
        if is_plain and not between and node.outputs[0] in at.outputs:
            return "what it makes is handed back, and is the operand of the other"
        return _Transposes(maker, tuple(reversed(between)), order)

    def _is_single(self, node: Node) -> bool:
        """Whether a node works on each element of its first operand, with weights of one element beside it."""
        others = operands_of(node)[1:]
        return (
            self.at.has(node, Trait.ELEMENTWISE)
            and self.at.are_weights(others)
            and all(value is None or self.graph.values[value].numel == _ONE for value in others)
            and len(self.graph.values[node.outputs[0]].shape) == len(self.graph.values[node.inputs[0]].shape)
        )


def _meet(drafting: Drafting, node: Node, place: _Transposes) -> None:
    """Run what is between on the operand of the first; one transposition is left, or none."""
    value = operand_at(place.first, 0)
    assert value is not None
    is_plain = place.order == tuple(range(len(place.order)))
    for position, maker in enumerate(place.between):
        made, operands = Inserted.again(maker), [value, *operands_of(maker)[1:]]
        if is_plain and position == len(place.between) - 1:
            drafting.replace(node.id, made, operands)
        else:
            dtype = drafting.dtype(maker.outputs[0])
            value = drafting.insert(node.id, made, operands, drafting.shape(value), "turned", dtype)
    if not is_plain:
        drafting.replace(node.id, drafting.dialect.turn(place.order), (value,))
    elif not place.between:
        drafting.edit.replace_uses(node.outputs[0], value)
        drafting.edit.remove(node.id)
    for maker in reversed((place.first, *place.between)):
        drafting.edit.remove(maker.id)


CANCEL_TRANSPOSES: Final = node_rule(
    "cancel_transposes",
    "transpositions move through element-wise operations and become one, or none",
    lambda graph, registry: _Meetings(graph, registry).of,
    _meet,
    ("meet another", "it is no transposition"),
    apart=True,
)


class _Same:
    """What hands on its operand as it is."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.at, self.graph = Patterns(graph, registry), graph

    def of(self, node: Node) -> int | str | None:
        """The operand that a node hands on; why it stays; None where it makes something else."""
        at, operands = self.at, operands_of(node)
        given = operands[0] if operands else None
        if given is None or node.outputs[0] in at.weights or not self._is_same(node, given, operands):
            return None
        if node.outputs[0] in at.outputs:
            return "what it makes is handed back under a name of its own"
        is_used = any(at.users[value] or value in at.outputs for value in node.outputs[1:])
        return "its mask is used" if is_used else given

    def _is_same(self, node: Node, given: int, operands: list[int | None]) -> bool:
        before, made = self.graph.values[given], self.graph.values[node.outputs[0]]
        if (before.shape, before.dtype) != (made.shape, made.dtype):
            return False
        at = self.at
        if at.is_a(node, "Transpose"):
            return _order(self.graph, node) == tuple(range(len(made.shape)))
        if at.is_a(node, "MaxPool", "AveragePool"):
            windows = at.windows(node)
            points = windows is not None and all(
                (w.kernel, w.stride, w.before, w.after) == (1, 1, 0, 0) for w in windows
            )
            return points and len(node.outputs) == 1
        return (
            at.is_a(node, "Identity", "Cast", *SAME_IF_SHAPED)
            or (at.is_a(node, "Dropout") and len(operands) < 3)  # the third says that it trains
            or (at.is_a(node, *SAME_IF_ALONE) and len(operands) == 1)
        )


def _hand_on(drafting: Drafting, node: Node, given: int) -> None:
    drafting.edit.replace_uses(node.outputs[0], given)
    drafting.edit.remove(node.id)


REMOVE_IDENTITIES: Final = node_rule(
    "remove_identities",
    "operations that hand on their operand go",
    lambda graph, registry: _Same(graph, registry).of,
    _hand_on,
    ("go", "it makes something else"),
    apart=True,
)


@dataclass(frozen=True, slots=True)
class _Cast:
    """A cast and a node in front of it, or after it, with which it changes places, or another cast with which it is one."""

    first: Node
    is_one: bool


class _Casts:
    """Casts that may move so that fewer bytes are moved: to wider numbers late, to narrower ones early."""

    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.at, self.graph = Patterns(graph, registry), graph

    def of(self, node: Node) -> _Cast | str | None:
        """The first of two nodes that change places or are one; why not; None where neither is a cast."""
        at = self.at
        first = at.only_maker(operand_at(node, 0))
        if first is None or node.outputs[0] in at.weights or len(node.outputs) != 1:
            return "no operation of its own is in front of it" if at.is_a(node, "Cast") else None
        if at.is_a(node, "Cast") and at.is_a(first, "Cast"):
            given, between = self._dtype(first.inputs[0]), self._dtype(first.outputs[0])
            return _Cast(first, True) if between in EXACT.get(given, ()) else "the first cast rounds"
        if at.is_a(node, "Cast") and at.is_a(first, *MOVEMENTS):
            if self._wider(node) or self._dtype(node.inputs[0]) == self._dtype(node.outputs[0]):
                return "it makes numbers that are no narrower"
            return (
                _Cast(first, False) if at.are_weights(operands_of(first)[1:]) else "more than that is moved"
            )
        if at.is_a(first, "Cast") and at.is_a(node, *MOVEMENTS):
            if not self._wider(first):
                return "the cast makes numbers that are no wider"
            return _Cast(first, False) if at.are_weights(operands_of(node)[1:]) else "more than that is moved"
        return "no cast or movement is in front of it" if at.is_a(node, "Cast") else None

    def _dtype(self, value: int) -> str:
        return self.graph.values[value].dtype

    def _wider(self, node: Node) -> bool:
        return DTYPE_BYTES[self._dtype(node.outputs[0])] > DTYPE_BYTES[self._dtype(node.inputs[0])]


def _move_cast(drafting: Drafting, node: Node, place: _Cast) -> None:
    """Exchange the two, or make one cast of them."""
    graph, first = drafting.graph, place.first
    given, *beside = operands_of(first)
    assert given is not None
    if place.is_one:
        drafting.replace(node.id, Inserted.again(node), (given,))
        drafting.edit.remove(first.id)
        return
    shape: Shape = drafting.shape(node.outputs[0])
    is_cast_last = graph.values[node.inputs[0]].dtype != graph.values[node.outputs[0]].dtype
    behind = drafting.shape(given) if is_cast_last else shape
    dtype = drafting.dtype(node.outputs[0]) if is_cast_last else drafting.dtype(given)
    made = drafting.insert(
        node.id, Inserted.again(node), (given, *operands_of(node)[1:]), behind, "moved", dtype
    )
    drafting.replace(node.id, Inserted.again(first), (made, *beside))
    drafting.edit.remove(first.id)


MOVE_CASTS: Final = node_rule(
    "move_casts",
    "casts to wider numbers run late, casts to narrower ones early",
    lambda graph, registry: _Casts(graph, registry).of,
    _move_cast,
    ("move", "no cast is there"),
    apart=True,
)

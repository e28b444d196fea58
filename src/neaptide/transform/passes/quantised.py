"""Operations on numbers that are dequantised before and quantised after run on whole numbers.

A convolution or product of whole numbers has the scales of its operands and of its result. A rectifier or a clip in front of
the quantisation is one of whole numbers after it, as quantisation keeps the order of numbers. What moves or compares
elements does so on whole numbers where their scale stays.

Sums of whole numbers are exact, those of floating-point numbers are rounded. So where a sum lies near the middle between two
quantised numbers, the form of whole numbers may be one step from the other, and nearer to the truth. Moves and comparisons
have the same bits in both forms: they are a rule of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.ops.dialect import Inserted, operands_of
from neaptide.ops.onnx.dialect import inserted as of_onnx
from neaptide.ops.onnx.facts import COMPARED
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.drafting import Drafting, sized
from neaptide.transform.node_rule import node_rule, operand_at
from neaptide.transform.passes.patterns import Patterns

_ONE: Final = SizeExpr.const(1)
_UINT8, _INT32, _INT64 = 2, 6, 7  # of the data types of ONNX
_QUANTISED: Final = frozenset({"int8", "uint8"})

_INTEGER_FORMS: Final[Mapping[str, str]] = MappingProxyType(
    {"Conv": "QLinearConv", "MatMul": "QLinearMatMul", "Add": "QLinearAdd"}
)


@dataclass(frozen=True, slots=True)
class _Place:
    """From dequantised operands to what quantises.

    Attributes:
        node: what computes between.
        operator: what does so on whole numbers; the operator itself where it compares.
        sources: what dequantises its operands.
        clip: a rectifier or clip behind it.
    """

    node: Node
    operator: str
    sources: tuple[Node, ...]
    clip: Node | None

    @property
    def compares(self) -> bool:
        """Whether it compares or moves elements, and computes nothing with them."""
        return self.operator == self.node.op


class _Places:
    def __init__(self, graph: Graph, registry: OpRegistry) -> None:
        self.at, self.graph = Patterns(graph, registry), graph

    def of(self, node: Node) -> _Place | str | None:
        """What runs on whole numbers in front of a quantisation; why nothing does; None where it is none."""
        at = self.at
        if not at.is_a(node, "QuantizeLinear") or node.outputs[0] in at.weights:
            return None
        if (
            len(node.args) < 3
            or self._dtype(node.outputs[0]) not in _QUANTISED
            or not self._one(node, (1, 2))
        ):
            return "it has a scale for each channel, or no zero point, or not 8 bits"
        made, clip = at.only_maker(operand_at(node, 0)), None
        if made is not None and at.is_a(made, "Relu", "Clip"):
            made, clip = at.only_maker(operand_at(made, 0)), made
        if made is None or at.is_a(made, "DequantizeLinear"):
            return "nothing of its own is between two forms of numbers"
        operator = next((form for name, form in _INTEGER_FORMS.items() if at.is_a(made, name)), None)
        if operator is None:
            return self._compared(node, made, clip)
        sources = [at.maker(operand_at(made, position)) for position in (0, 1)]
        found = tuple(source for source in sources if source is not None and self._is_dequantised(source))
        if len(found) < 2:
            return "an operand is not dequantised"
        if not self._one(found[0], (1, 2)) or (operator != "QLinearConv" and not self._one(found[1], (1, 2))):
            return "an operand has a scale for each channel"
        if operator == "QLinearConv" and not at.are_weights(operands_of(made)[1:]):
            return "the filters are no weights"
        if not self._are_taken(operator, [source.inputs[0] for source in found], node.outputs[0]):
            return "its operands and its result have signs that no kernel takes together without saturation"
        if clip is not None and not self._is_plain(clip, node):
            return "what clips it has other operands than single weights"
        return _Place(made, operator, found, clip)

    def _compared(self, node: Node, made: Node, clip: Node | None) -> _Place | str:
        at, source = self.at, self.at.maker(operand_at(made, 0))
        if clip is not None or not at.is_a(made, *COMPARED) or len(made.outputs) != 1:
            return f"{made.op} has no form of whole numbers"
        if (
            source is None
            or not self._is_dequantised(source)
            or operands_of(source)[1:3] != operands_of(node)[1:3]
        ):
            return "the scale changes"
        if at.is_a(made, "MaxPool") and int(made.op.rpartition(".")[2]) < 12:
            return "this version of MaxPool has no form of whole numbers"
        return _Place(made, made.op, (source,), None)

    def _is_dequantised(self, node: Node) -> bool:
        has_zero = len(node.args) > 2 and self._dtype(node.inputs[0]) in _QUANTISED
        return self.at.is_a(node, "DequantizeLinear") and has_zero and not node.kwarg("block_size", 0)

    def _are_taken(self, operator: str, given: list[int], made: int) -> bool:
        """Whether operands and result have one type; signed weights can be unsigned where all else is."""
        first, second, result = (self._dtype(value) for value in (*given, made))
        may_differ = operator != "QLinearAdd" and first == "uint8" and self.at.are_weights(given[1:])
        return first == result and (second == first or may_differ)

    def _one(self, node: Node, positions: tuple[int, ...]) -> bool:
        """Whether operands at some positions are weights of no dims."""
        values = [operand_at(node, position) for position in positions]
        return self.at.are_weights(values) and all(
            value is not None and not self.graph.values[value].shape for value in values
        )

    def _is_plain(self, clip: Node, node: Node) -> bool:
        bounds = [value for value in operands_of(clip)[1:] if value is not None]
        return (
            not clip.kwargs
            and self.at.are_weights(bounds)
            and all(self.graph.values[value].numel == _ONE for value in bounds)
            and self._dtype(node.inputs[0]) == "float32"
        )

    def _dtype(self, value: int) -> str:
        return self.graph.values[value].dtype


def _run_whole(drafting: Drafting, node: Node, place: _Place) -> None:
    """Compute on whole numbers, and clip them."""
    graph, made = drafting.graph, place.node
    scale, zero = operands_of(node)[1:3]
    first = operands_of(place.sources[0])[:3]
    if place.compares:
        operands = [first[0], *operands_of(made)[1:]]
        inserted = Inserted.again(made)
    else:
        second = operands_of(place.sources[1])[:3]
        if place.operator != "QLinearAdd" and drafting.dtype(node.outputs[0]) == "uint8":
            second = _unsigned(drafting, node.id, second)
        operands = [*first, *second, scale, zero]
        is_convolution = place.operator == "QLinearConv"
        inserted = of_onnx(place.operator, **(dict(made.kwargs) if is_convolution else {}))
        bias = operand_at(made, 2) if is_convolution else None
        if bias is not None:
            operands.append(_whole_bias(drafting, node.id, bias, (first[1], second[1])))
    if place.clip is None:
        is_view = graph.values[made.outputs[0]].storage == graph.values[made.inputs[0]].storage
        drafting.replace(node.id, replace(inserted, is_view=is_view), operands)
    else:
        kind = drafting.dtype(node.outputs[0])
        value = drafting.insert(node.id, inserted, operands, drafting.shape(node.outputs[0]), "whole", kind)
        bounds = [
            None if bound is None else _quantised(drafting, node, bound)
            for bound in operands_of(place.clip)[1:]
        ] or [zero]
        drafting.replace(node.id, of_onnx("Clip"), (value, *bounds))
        drafting.edit.remove(place.clip.id)
    users = graph.consumers()
    drafting.edit.remove(made.id)
    for source in dict.fromkeys(place.sources):
        if set(users[source.outputs[0]]) == {made.id} and source.outputs[0] not in graph.outputs:
            drafting.edit.remove(source.id)


def _unsigned(drafting: Drafting, anchor: int, weights: Sequence[int | None]) -> list[int | None]:
    """Weights, their scale and their zero point, of the same numbers on unsigned bytes.

    Sums of products of unsigned and signed bytes saturate in 16 bits on processors that have no instruction for them.
    """
    numbers, scale, zero = weights
    assert numbers is not None
    assert zero is not None
    if drafting.dtype(numbers) == "uint8":
        return [*weights]
    half = drafting.numbers(anchor, (128,))

    def raised(value: int) -> int:
        shape = drafting.shape(value) or sized(1)
        wide = drafting.insert(anchor, of_onnx("Cast", to=_INT64), (value,), shape, "wide", "int64")
        moved = drafting.insert(anchor, drafting.dialect.add, (wide, half), shape, "wide")
        return drafting.insert(anchor, of_onnx("Cast", to=_UINT8), (moved,), shape, "unsigned", "uint8")

    return [raised(numbers), scale, raised(zero)]


def _quantised(drafting: Drafting, node: Node, bound: int) -> int:
    """A bound as the whole number that stands for it."""
    made = Inserted.again(node)
    operands = (bound, *operands_of(node)[1:3])
    return drafting.insert(
        node.id, made, operands, drafting.shape(bound), "bound", drafting.dtype(node.outputs[0])
    )


def _whole_bias(drafting: Drafting, anchor: int, bias: int, scales: tuple[int | None, ...]) -> int:
    """A bias as whole numbers of the scale that products of both operands have."""
    shape = drafting.shape(bias)
    given = [scale for scale in scales if scale is not None]
    product = drafting.insert(anchor, of_onnx("Mul"), given, drafting.shape(given[1]), "scale")
    share = drafting.insert(anchor, of_onnx("Div"), (bias, product), shape, "share")
    whole = drafting.insert(anchor, of_onnx("Round"), (share,), shape, "share")
    return drafting.insert(anchor, of_onnx("Cast", to=_INT32), (whole,), shape, "bias", "int32")


def _places(is_comparison: bool) -> Callable[[Graph, OpRegistry], Callable[[Node], Any]]:
    """Of places on whole numbers, those that compare or move, or those that compute."""
    other = "it compares or moves elements" if not is_comparison else "it computes with elements"

    def pattern(graph: Graph, registry: OpRegistry) -> Callable[[Node], Any]:
        places = _Places(graph, registry)

        def of(node: Node) -> _Place | str | None:
            place = places.of(node)
            return other if isinstance(place, _Place) and place.compares != is_comparison else place

        return of

    return pattern


_CANNOT: Final = ("run on whole numbers", "it is no quantisation")

INTEGER_OPERATORS: Final = node_rule(
    "integer_operators",
    "products and sums between dequantisation and quantisation run on whole numbers",
    _places(is_comparison=False),
    _run_whole,
    _CANNOT,
    keeps_bits=False,
    apart=True,
)
INTEGER_MOVES: Final = node_rule(
    "integer_moves",
    "what moves or compares elements between dequantisation and quantisation does so on whole numbers",
    _places(is_comparison=True),
    _run_whole,
    _CANNOT,
    apart=True,
)

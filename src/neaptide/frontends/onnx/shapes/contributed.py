"""Operators whose shapes onnx does not work out, most of ONNX Runtime's own domain: a standard operator of the same shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from onnx import NodeProto

DOMAIN: Final = "com.microsoft"


@dataclass(frozen=True, slots=True)
class StandIn:
    """A standard operator, the operands that it takes, and its attributes; those of the node that it does not have go."""

    operator: str
    operands: tuple[int, ...] = (0,)
    attributes: tuple[str, ...] = ()
    every: int = 0  # further operands, each so many after the last


_WINDOW: Final = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
_STAND_INS: Final = {
    "FusedConv": StandIn(
        "Conv", (0, 1), ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    ),
    "FusedGemm": StandIn("Gemm", (0, 1), ("transA", "transB")),
    "QGemm": StandIn("Gemm", (0, 3), ("transA", "transB")),
    "QLinearAdd": StandIn("Add", (0, 3)),
    "QLinearMul": StandIn("Mul", (0, 3)),
    "QLinearConcat": StandIn("Concat", (2,), ("axis",), every=3),
    "QLinearAveragePool": StandIn("AveragePool", (0,), _WINDOW),
    "QLinearGlobalAveragePool": StandIn("GlobalAveragePool"),
    **dict.fromkeys(
        (
            *("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "SkipLayerNormalization"),
            *("QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax"),
        ),
        StandIn("Identity"),
    ),
}
WITHOUT_SHAPES: Final = dict.fromkeys(
    ("GroupNormalization", "MeanVarianceNormalization"), StandIn("Identity")
)
"""Of the standard domain; some of their versions have no inference in onnx, or one that fails."""
_FLOATS_WITHOUT_SCALE: Final = {"QGemm": 7}
"""Operators that make floating-point numbers where the operand at a position, the scale of the result, is absent."""


def stand_in(node: NodeProto) -> NodeProto | None:
    """A standard node whose result has the shape of a node's first result; None where none is known."""
    known = (_STAND_INS if node.domain == DOMAIN else WITHOUT_SHAPES).get(node.op_type)
    if known is None:
        return None
    from onnx import NodeProto

    places = list(known.operands)
    while known.every and places[-1] + known.every < len(node.input):
        places.append(places[-1] + known.every)
    if places[-1] >= len(node.input):
        return None
    made = NodeProto(op_type=known.operator, name=node.name)
    made.input[:] = [node.input[place] for place in places]
    made.output[:] = node.output[:1]
    made.attribute.extend(attribute for attribute in node.attribute if attribute.name in known.attributes)
    return made


def makes_floats(node: NodeProto) -> bool:
    """Whether the first result is of floating-point numbers though the operands are whole ones."""
    place = _FLOATS_WITHOUT_SCALE.get(node.op_type)
    return place is not None and (place >= len(node.input) or not node.input[place])

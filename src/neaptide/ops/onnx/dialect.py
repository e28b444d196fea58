"""What rules insert into a graph of ONNX operators: one form of each, whatever the opset of the model.

Lists of numbers are operands, as they are since opset 13. Whoever writes a file for an older opset puts them where that
has them (`lower.onnx.opset_forms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from neaptide.ir.nodes import Arg
from neaptide.ops.dialect import Dialect, Inserted
from neaptide.ops.onnx.table import op_name

VERSIONS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "Add": 14,
        "Cast": 13,
        "Clip": 13,
        "Concat": 13,
        "Constant": 13,
        "Div": 14,
        "Flatten": 13,
        "Mul": 14,
        "QLinearConv": 10,
        "QLinearMatMul": 10,
        "Round": 11,
        "Slice": 13,
        "Split": 13,
        "Squeeze": 13,
        "Sub": 14,
        "Transpose": 13,
    }
)
"""Of the schemas of what passes insert."""


def _made(operator: str, *lists: tuple[int, ...], **kwargs: Arg) -> Inserted:
    return Inserted(op_name(operator, VERSIONS[operator]), tuple(sorted(kwargs.items())), lists)


ONNX: Final = Dialect(
    namespace="onnx",
    operator=_made,
    join=lambda axis: _made("Concat", axis=axis),
    cut=lambda axis, begin, end: _made("Slice", (begin,), (end,), (axis,)),
    split=lambda axis, lengths: _made("Split", lengths, axis=axis),
    drop=lambda axis: _made("Squeeze", (axis,)),
    numbers=lambda values: _made("Constant", value_ints=values),
)

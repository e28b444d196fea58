"""What rules insert into a graph of ONNX operators: one form of each, whatever the opset of the model.

Lists of numbers are operands, as they are since opset 13. Whoever writes a file for an older opset puts them where that
has them (`lower.onnx.opset_forms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from neaptide.ir.nodes import Arg, Node
from neaptide.ir.registry import Trait
from neaptide.ir.values import Kind
from neaptide.ops.dialect import Dialect, Inserted
from neaptide.ops.onnx.table import op_name, operator_of

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
        "QLinearAdd": 1,
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
_DOMAINS: Final[Mapping[str, str]] = MappingProxyType({"QLinearAdd": "com.microsoft"})


def inserted(operator: str, *lists: tuple[int, ...], **kwargs: Arg) -> Inserted:
    """An operator by its name, with attributes by keyword; `lists` are operands after those that are handed over."""
    name = op_name(operator, VERSIONS[operator], _DOMAINS.get(operator, ""))
    return Inserted(name, tuple(sorted(kwargs.items())), lists=lists)


def _joined_dim(node: Node) -> int | None:
    axis = node.kwarg("axis", 1) if operator_of(node.op) == "Concat" else None
    return axis if isinstance(axis, int) else None


ONNX: Final = Dialect(
    kind=Kind.ACTIVATION,
    joined_dim=_joined_dim,
    join=lambda dim: inserted("Concat", axis=dim),
    cut=lambda dim, begin, end: inserted("Slice", (begin,), (end,), (dim,)),
    turn=lambda order: inserted("Transpose", perm=order),
    add=inserted("Add"),
    summed=frozenset({Trait.CONVOLUTION, Trait.CONTRACTION}),
    kept=frozenset({Trait.ELEMENTWISE, Trait.NORMALISATION}),
    numbers=lambda values: inserted("Constant", value_ints=values),
)

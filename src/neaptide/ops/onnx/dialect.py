"""What rules insert into a graph of ONNX operators, at the versions that its opset has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from neaptide.errors import RewriteError
from neaptide.ir.nodes import Arg
from neaptide.ops.dialect import Dialect, Inserted
from neaptide.ops.onnx.table import op_name

SINCE: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "Add": (7, 13, 14),
        "Cast": (6, 9, 13, 19, 21, 23, 24, 25, 28),
        "Clip": (11, 12, 13),
        "Concat": (4, 11, 13),
        "Constant": (1, 9, 11, 12, 13, 19, 21, 23, 24, 25),
        "Div": (7, 13, 14),
        "Flatten": (1, 9, 11, 13, 21, 23, 24, 25),
        "Mul": (7, 13, 14),
        "QLinearConv": (10,),
        "QLinearMatMul": (10, 21),
        "Round": (11, 22),
        "Slice": (1, 10, 11, 13),
        "Split": (2, 11, 13, 18),
        "Squeeze": (1, 11, 13, 21, 23, 24, 25),
        "Sub": (7, 13, 14),
        "Transpose": (1, 13, 21, 23, 24, 25),
    }
)
"""Versions of the schemas of what passes insert."""

_LISTS_OF_NUMBERS: Final = 12  # since then a Constant is a list of numbers without a tensor


@cache
def onnx_dialect(opset: int) -> Dialect:
    """The dialect at an opset; the largest version of an operator in a graph is a bound of it from below."""

    def since(operator: str) -> int:
        found = [version for version in SINCE[operator] if version <= opset]
        if not found:
            raise RewriteError(f"opset {opset} has no operator {operator}")
        return found[-1]

    def made(operator: str, *lists: tuple[int, ...], **kwargs: Arg) -> Inserted:
        return Inserted(op_name(operator, since(operator)), tuple(sorted(kwargs.items())), lists)

    def cut(axis: int, begin: int, end: int) -> Inserted:
        if opset < 10:
            return made("Slice", axes=(axis,), starts=(begin,), ends=(end,))
        _need_lists(opset)
        return made("Slice", (begin,), (end,), (axis,))

    def split(axis: int, lengths: tuple[int, ...]) -> Inserted:
        if since("Split") < 13:
            return made("Split", axis=axis, split=lengths)
        return made("Split", lengths, axis=axis)

    def drop(axis: int) -> Inserted:
        return made("Squeeze", axes=(axis,)) if since("Squeeze") < 13 else made("Squeeze", (axis,))

    def numbers(values: tuple[int, ...]) -> Inserted:
        _need_lists(opset)
        return made("Constant", value_ints=values)

    return Dialect("onnx", made, lambda axis: made("Concat", axis=axis), cut, split, drop, numbers)


def _need_lists(opset: int) -> None:
    if opset < _LISTS_OF_NUMBERS:
        raise RewriteError(f"at opset {opset} a list of numbers is no operator without a tensor")

"""Element types of ONNX, by number, as dtypes of the IR."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from neaptide.errors import UnsupportedModel
from neaptide.ir.values import DTYPE_BYTES, PACKED

DTYPES: Final = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1",
}
NUMBERS: Final = {dtype: number for number, dtype in DTYPES.items()}
_STRING: Final = 8


def dtype_of(number: int, what: str) -> str:
    """The dtype of an element type; `what` names the tensor in an error."""
    found = DTYPES.get(number)
    if found is None:
        kind = "strings" if number == _STRING else f"elements of type {number}"
        raise UnsupportedModel(
            f"{what} holds {kind}, which are not planned",
            why="only tensors of numbers have a size that is known before",
            next_step="cut the model before and after it",
        )
    return found


def nbytes_of(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor; elements of less than a byte are packed, and the last byte is counted whole."""
    return -(-prod(shape) * DTYPE_BYTES[dtype] // PACKED.get(dtype, 1))

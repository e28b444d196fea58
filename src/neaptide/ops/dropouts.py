"""Dropout as one operation, and the operations that draw its mask and apply it one after the other.

Facts of PyTorch's kernels for the CPU (`aten/src/ATen/native/Dropout.cpp`), held by tests: which numbers are drawn depends on
the shape alone, not on the dtype, and the factor is rounded to the dtype before anything is multiplied with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

FUSED_DROPOUT: Final = "aten.native_dropout.default"
"""An operand, a chance and whether it trains: the result, and the mask of what stays."""

MASK_DTYPE: Final = "bool"

UNFILLED_LIKE: Final = "aten.empty_like.default"
"""A tensor as another, of the dtype that is given by keyword, with no numbers yet."""

DRAW: Final = "aten.bernoulli_.float"
"""Overwrites a tensor with zeros, and ones with a chance."""

APPLY_MASK: Final = "aten.native_dropout_backward.default"
"""An operand times a mask times a factor. It is the gradient of a dropout, and computes what its forward does."""


def kept_factor(chance: float, dtype: str) -> float | None:
    """What dropout with a chance that an element goes multiplies with what stays, as a number of a dtype; None where it has none."""
    rounded = _ROUNDED.get(dtype)
    if rounded is None:
        return None
    try:
        return rounded(1.0 / (1.0 - chance) if chance < 1.0 else 0.0)
    except OverflowError:
        return None


def _as_float32(number: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    return float(rounded)


def _as_float16(number: float) -> float:
    (rounded,) = struct.unpack("<e", struct.pack("<e", _as_float32(number)))
    return float(rounded)


def _as_bfloat16(number: float) -> float:
    """The upper half of a float32, rounded to the nearest and between two to the even one."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    bits += 0x7FFF + (bits >> 16 & 1)
    (rounded,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))
    return float(rounded)


_ROUNDED: Final[Mapping[str, Callable[[float], float]]] = MappingProxyType(
    {"float64": float, "float32": _as_float32, "float16": _as_float16, "bfloat16": _as_bfloat16}
)

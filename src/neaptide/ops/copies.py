"""Operations that copy elements and compute nothing: whole tensors, to another dtype, or several into one.

Facts of the PyTorch operator schemas (`native_functions.yaml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CLONE: Final = "aten.clone.default"
"""The same elements in bytes of their own."""

CAST: Final = "aten._to_copy.default"
"""The elements in another dtype, given by keyword, in bytes of their own."""

LAYOUT: Final = "memory_format"
"""Keyword of both: how the result lies."""

ROW_MAJOR: Final = "contiguous_format"

JOINS: Final[Mapping[str, bool]] = MappingProxyType({"aten.cat.default": False, "aten.stack.default": True})
"""A list of tensors and a dim (0 where it is not given) that they lie along; whether that dim is a new one."""

PERMUTE: Final = "aten.permute.default"
"""A view of a tensor: the order of its dims."""

EXACT: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "bfloat16": frozenset({"float32", "float64"}),
        "float16": frozenset({"float32", "float64"}),
        "float32": frozenset({"float64"}),
    }
)
"""By dtype those that hold each of its numbers, so that a cast there and back changes no bit."""

"""The rows of operations as they hold in graphs of FX."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from neaptide.ir.registry import OpRegistry
from neaptide.ops import registry


def rows() -> OpRegistry:
    """All rows; those declared by the user included."""
    return _of_fx(registry())


@cache
def _of_fx(known: OpRegistry) -> OpRegistry:
    """An operation takes the operand of which it needs the shape alone."""
    return OpRegistry([replace(row, shape_only=()) for row in known])

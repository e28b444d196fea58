"""The rows of operations as they hold in graphs of FX."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ops import registry


def rows() -> OpRegistry:
    """All rows; those declared by the user included."""
    return _of_fx(registry())


@cache
def _of_fx(known: OpRegistry) -> OpRegistry:
    return OpRegistry([_row_of_fx(row) for row in known])


def _row_of_fx(row: OpSpec) -> OpSpec:
    """An operation takes the operand of which it needs the shape alone, and no random numbers are drawn again."""
    return replace(row, shape_only=(), deterministic=row.deterministic and not row.rng)

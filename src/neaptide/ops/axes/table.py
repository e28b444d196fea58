"""The table of axes, joined to the rows of operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from neaptide.ir.registry import AxisRow, OpSpec, Trait
from neaptide.ops.axes import elementwise, layers, movement, pools, reductions
from neaptide.ops.axes.forms import pointwise
from neaptide.ops.table import overloads

_FAMILIES = (elementwise, movement, layers, reductions, pools)


@cache
def table() -> Mapping[str, AxisRow]:
    """Rows by operation name, one for each."""
    found: dict[str, AxisRow] = {}
    for family in _FAMILIES:
        for block in family.ROWS:
            row = replace(block.row, shapes=block.shapes)
            for overload in overloads(block.names):
                if found.setdefault(overload.name, row) is not row:
                    raise ValueError(f"two rows of axes for {overload.name}")
    return found


def with_axes(rows: Iterable[OpSpec]) -> Iterator[OpSpec]:
    """The rows, told along which axes they run in parts.

    What works element by element does so along every axis, if no row says otherwise.
    """
    plain = pointwise()
    for row in rows:
        axes = table().get(row.name, row.axes)
        if axes is None and row.is_a(Trait.ELEMENTWISE) and not row.rng:
            axes = plain
        yield row if axes is None else replace(row, axes=axes)

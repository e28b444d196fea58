"""What every operation means, as tables. `registry()` joins them."""

from __future__ import annotations

from functools import cache

from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ops.declared import declared_rows


def registry() -> OpRegistry:
    """All known operations: ATen, host scalars, neaptide's own, and those the user declared. O(rows), once."""
    return _joined(declared_rows())


@cache
def _joined(declared: tuple[OpSpec, ...]) -> OpRegistry:
    from neaptide.ops import structural
    from neaptide.ops.aten import elementwise, host, layers, movement, reductions
    from neaptide.ops.axes.table import with_axes

    families = (elementwise, reductions, layers, movement, host)
    rows = (row for family in families for row in family.ROWS)
    return OpRegistry(with_axes([*rows, *structural.rows(), *declared]))

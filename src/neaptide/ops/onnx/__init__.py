"""What every operator of ONNX means, as tables. `registry()` joins them."""

from __future__ import annotations

from functools import cache

from neaptide.ir.registry import OpRegistry


@cache
def registry() -> OpRegistry:
    """All known operators of ONNX, and neaptide's own operations. O(rows), once."""
    from neaptide.ops import structural
    from neaptide.ops.axes.table import with_axes
    from neaptide.ops.onnx import elementwise, layers, movement
    from neaptide.ops.onnx.axes import with_onnx_axes

    families = (elementwise, layers, movement)
    rows = (with_onnx_axes(row) for family in families for row in family.ROWS)
    return OpRegistry([*rows, *with_axes(structural.rows())])

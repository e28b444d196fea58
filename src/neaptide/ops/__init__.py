"""What every operation means, as tables. `registry()` joins them."""

from __future__ import annotations

from functools import cache

from neaptide.ir.registry import OpRegistry


@cache
def registry() -> OpRegistry:
    """All known operations: ATen, host scalars, neaptide's own, and those the user declared. O(rows), once."""
    from neaptide.ops import aten, declared, structural
    from neaptide.ops.axes import with_axes

    return OpRegistry(with_axes([*aten.rows(), *structural.rows(), *declared.declared_rows()]))

"""The table of PyTorch's operations, family by family."""

from __future__ import annotations

from collections.abc import Iterator

from neaptide.ir.registry import OpSpec
from neaptide.ops import (
    aten_activations,
    aten_algebra,
    aten_attention,
    aten_contractions,
    aten_copies,
    aten_elementwise,
    aten_factories,
    aten_gathers,
    aten_host,
    aten_losses,
    aten_normalisation,
    aten_pools,
    aten_recurrent,
    aten_reductions,
    aten_updates,
    aten_views,
    prims,
)
from neaptide.ops.in_place import with_in_place

_FAMILIES = (
    aten_elementwise,
    aten_activations,
    aten_reductions,
    aten_contractions,
    aten_attention,
    aten_recurrent,
    aten_normalisation,
    aten_views,
    aten_copies,
    aten_gathers,
    aten_factories,
    aten_losses,
    aten_pools,
    aten_updates,
    aten_algebra,
    aten_host,
    prims,
)


def rows() -> Iterator[OpSpec]:
    """A row for every overload that the tables know, under the name that `str(overload)` gives in PyTorch."""
    for family in _FAMILIES:
        yield from with_in_place(family.rows())

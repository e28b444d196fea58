"""Graphs that are one loop."""

from __future__ import annotations

from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr


def looped(body, trips, step, outputs, *merges, at=0, axis=0, halo=0, rows=None, **inputs):
    """A loop over a body, whose input at one position is sliced along an axis; inputs by name with their shapes.

    Merges are the arguments of `MergeMap`; by default the only result is joined along the first axis.
    """
    b = GraphBuilder("loop", rows or registry())
    made = b.loop(
        body.finish(),
        trips,
        [b.input(name, shape) for name, shape in inputs.items()],
        outputs=outputs,
        slices=[SliceMap(at, axis, SizeExpr.const(step), halo, halo)],
        merges=[MergeMap(*merge) for merge in merges or [(0, "concat", 0)]],
    )
    b.output(*made)
    return b.finish()

"""Loops in few words."""

from __future__ import annotations

from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import MergeMap, SliceMap
from neaptide.ops import registry
from neaptide.symbolic.size_expr import SizeExpr


def add_loop(b, body, trips, step, given, outputs, *merges, at=0, axis=0, halo=0, **options):
    """Results of a loop over a body, of whose inputs one, at a position, is sliced along an axis.

    Merges are the arguments of `MergeMap`; by default the only result is joined along the first axis.
    """
    return b.loop(
        body.finish(),
        trips,
        given,
        outputs=outputs,
        slices=[SliceMap(at, axis, SizeExpr.const(step), halo, halo)],
        merges=[MergeMap(*merge) for merge in merges or ([(0, "concat", 0)] if outputs else [])],
        **options,
    )


def looped(body, trips, step, outputs, *merges, rows=None, axis=0, halo=0, **inputs):
    """A graph that is one such loop; inputs by name with their shapes."""
    b = GraphBuilder("loop", rows or registry())
    given = [b.input(name, shape) for name, shape in inputs.items()]
    b.output(*add_loop(b, body, trips, step, given, outputs, *merges, axis=axis, halo=halo))
    return b.finish()

"""Fission along an axis that sliding windows read: parts overlap, and what lies in two of them is made twice.

The halo of a tiled convolution, for any chain of windows (fused-layer tiling: Alwani et al., MICRO 2016), as a loop over
parts of the results. MAGIS (Chen et al., ASPLOS 2024) splits along axes without overlap alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from neaptide.analysis.axes.windows import Scaled
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value
from neaptide.transform.fission.window_loop import extract_window_loop
from neaptide.transform.rewrite import Rewrite
from neaptide.transform.rules.handed_values import (
    RegionRule,
    number_of,
    region_rewrite,
    seeds_of,
    settings_of,
)

_RUN = 5


@dataclass(frozen=True, slots=True)
class Windows(RegionRule):
    """Runs the nodes of a rewrite as one loop of overlapping parts. `windows` makes such rewrites.

    Settings: number of `parts`; `inputs` as runs of (node, place, dim, numerator, denominator) for each value that is
    handed to the region in parts: its elements for one unit of the axis are numerator / denominator. All else follows from the op table.
    """

    name: str = "windows"
    summary: str = "a region runs in parts that overlap"

    def apply(self, graph: Graph, registry: OpRegistry, rewrite: Rewrite) -> Edited:
        """As `Rule.apply`. O(size of the graph)."""
        settings = settings_of(rewrite, "inputs", "parts")
        seeds = seeds_of(graph, rewrite, _RUN, _scaled)
        return extract_window_loop(graph, registry, rewrite.nodes, seeds, number_of(settings, "parts"))


def _scaled(value: Value, dim: int, above: int, below: int) -> Scaled | None:
    is_there = min(above, below) >= 1 and 0 <= dim < len(value.shape)
    return Scaled(dim, Fraction(above, below)) if is_there else None


def windows(graph: Graph, nodes: Collection[int], *, parts: int, inputs: Mapping[int, Scaled]) -> Rewrite:
    """The rewrite that runs some nodes of a graph in parts that overlap: `parts` at most, each as long as the first but for the
    last, which may be shorter; `inputs` as of `region_rewrite`.
    """
    where = {value: (at.dim, at.scale.numerator, at.scale.denominator) for value, at in inputs.items()}
    return region_rewrite(Windows().name, graph, nodes, where, parts=parts)

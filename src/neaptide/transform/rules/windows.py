"""Fission along an axis that sliding windows read: parts overlap, and what lies in two of them is made twice.

The halo of a tiled convolution, for any chain of windows (fused-layer tiling: Alwani et al., MICRO 2016), as a loop over
parts of the results. MAGIS (Chen et al., ASPLOS 2024) splits along axes without overlap alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from neaptide.analysis.axes.windows import Scaled
from neaptide.errors import RewriteError
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.with_sizes import is_static
from neaptide.transform.fission.window_candidates import window_candidates
from neaptide.transform.fission.window_loop import extract_window_loop
from neaptide.transform.rewrite import Refusal, Rewrite, Setting
from neaptide.transform.rules.handed_values import number_setting, operand_at, places_of, runs_of

_NAMES = ("inputs", "parts")
_RUN = 5


@dataclass(frozen=True, slots=True)
class Windows:
    """Runs the nodes of a rewrite as one loop of overlapping parts. `windows` makes such rewrites.

    Settings: number of `parts`; `inputs` as runs of (node, place, dim, numerator, denominator) for each value that is
    handed to the region in parts: its elements for one unit of the axis are numerator / denominator. A node is its
    position in the rewrite's nodes; place -1 is its first input, -2 its second. All else follows from the op table.
    """

    name: str = "windows"
    keeps_bits: bool = False
    each_node: bool = False
    are_alternatives: bool = True
    summary: str = "a region runs in parts that overlap"

    def find(
        self, graph: Graph, registry: OpRegistry, near: Collection[int] | None = None
    ) -> Iterator[Rewrite | Refusal]:
        """As `Rule.find`: the regions of `transform.fission.window_candidates`, each in two parts. O(stretches x axes x nodes)."""
        for region in window_candidates(graph, registry) if is_static(graph) else ():
            if near is not None and region.members.isdisjoint(near):
                continue
            made = windows(graph, region.members, parts=2, inputs=region.scaled_seeds())
            try:
                self.apply(graph, registry, made)
            except RewriteError as error:
                yield Refusal(self.name, made.nodes, error.what)
            else:
                yield made

    def apply(self, graph: Graph, registry: OpRegistry, rewrite: Rewrite) -> Edited:
        """As `Rule.apply`. O(size of the graph)."""
        settings = dict(rewrite.settings)
        if tuple(settings) != _NAMES or len(set(rewrite.nodes)) < len(rewrite.nodes) or not rewrite.nodes:
            raise RewriteError(f"it must name nodes, each once, and the settings {', '.join(_NAMES)}")
        seeds: dict[int, Scaled] = {}
        for node, place, dim, above, below in runs_of(settings["inputs"], _RUN):
            value = operand_at(graph, rewrite, node, place)
            if min(above, below) < 1 or not 0 <= dim < len(graph.values[value].shape):
                raise RewriteError(f"%{graph.values[value].name} has no such dim, or no elements in a unit")
            at = Scaled(dim, Fraction(above, below))
            if seeds.setdefault(value, at) != at:
                raise RewriteError(f"%{graph.values[value].name} is handed over along two axes")
        parts = number_setting(settings, "parts")
        return extract_window_loop(graph, registry, rewrite.nodes, seeds, parts)


def windows(graph: Graph, nodes: Collection[int], *, parts: int, inputs: Mapping[int, Scaled]) -> Rewrite:
    """The rewrite that runs some nodes of a graph in parts that overlap.

    Args:
        graph: in which the nodes are.
        nodes: the region.
        parts: how many at most; each is as long as the first but for the last, which may be shorter.
        inputs: by value that is handed to the region in parts, where the axis lies in it; others are handed over whole.
    """
    members = tuple(sorted(nodes))
    places = places_of(graph, members)
    runs = [
        (*places[value], at.dim, at.scale.numerator, at.scale.denominator)
        for value, at in inputs.items()
        if value in places
    ]
    settings: tuple[tuple[str, Setting], ...] = (
        ("inputs", tuple(number for run in sorted(runs) for number in run)),
        ("parts", parts),
    )
    return Rewrite(Windows().name, members, settings, keeps_bits=False)

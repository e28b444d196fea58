"""Fission of a graph whose dims vary: how long a part is, each call chooses for its shape.

The length of a part is a dim of its own, which no argument tells. So the number of parts is an expression in the dims of
the graph and in this one, and one loop runs in one part or in many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import Binding
from neaptide.ir.registry import OpRegistry
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.loop import extract_loop
from neaptide.transform.fission.split import Split
from neaptide.transform.rewrite import Refusal, Rewrite, Setting
from neaptide.transform.rules.fission import check_alike, followed
from neaptide.transform.rules.handed_values import operand_at, places_of, runs_of

_NAMES = ("inputs", "length", "step")
_RUN = 3
_SHAPES: Final = 3  # at which rows of the op table are asked; they must agree


@dataclass(frozen=True, slots=True)
class FissionByShape:
    """Runs the nodes of a rewrite as one loop whose number of parts is chosen at each call.

    `fission_by_shape` makes such rewrites.

    Settings: `length` of the axis, as an expression in dims; `step`, the name of the dim that it declares: elements of the
    axis in a part, from 1 to the length; `inputs` as runs of (node, place, dim) for each value that is handed to the region
    in parts, as `Fission` has them.

    What carries the axis is asked at a few shapes, and must be the same at all of them. That each part has the extents and
    arguments that it needs is then checked as expressions, for all shapes.
    """

    name: str = "fission_by_shape"
    keeps_bits: bool = False
    each_node: bool = False
    are_alternatives: bool = True
    summary: str = "a region runs in as many parts as the shape of a call needs"

    def find(
        self, graph: Graph, registry: OpRegistry, near: Collection[int] | None = None
    ) -> Iterator[Rewrite | Refusal]:
        """Nothing. Regions are told at one shape (`planner.points.regions`), and a graph does not say for which shapes it is meant."""
        del graph, registry, near
        return iter(())

    def apply(self, graph: Graph, registry: OpRegistry, rewrite: Rewrite) -> Edited:
        """As `Rule.apply`. O(size of the graph)."""
        settings = dict(rewrite.settings)
        if tuple(settings) != _NAMES or len(set(rewrite.nodes)) < len(rewrite.nodes) or not rewrite.nodes:
            raise RewriteError(f"it must name nodes, each once, and the settings {', '.join(_NAMES)}")
        length, step = _length(graph, settings["length"]), _new_dim(graph, settings["step"])
        seeds: dict[int, Along] = {}
        for node, place, dim in runs_of(settings["inputs"], _RUN):
            value = operand_at(graph, rewrite, node, place)
            if seeds.setdefault(value, Along(dim)) != Along(dim):
                raise RewriteError(f"%{graph.values[value].name} is handed over along two axes")
        store = SizeRelations(graph.dims, graph.relations)
        shapes = _telling(graph, store, length)[:_SHAPES]
        if not shapes:
            raise RewriteError(f"an axis of {length} has no two elements at any shape")
        carried = followed(graph, registry, rewrite.nodes, seeds, length, shapes[0])
        for shape in shapes[1:]:
            other = followed(graph, registry, rewrite.nodes, seeds, length, shape)
            check_alike(carried, other, "at another shape")
        sizes = {node: line.axis.sizes for node, line in carried.members.items()}
        split = Split(length, SizeExpr.dim(step), carried.axes, carried.sums, sizes)
        high = store.bound(length).high
        return extract_loop(graph, registry, rewrite.nodes, split, Dim(step, 1, high))


def fission_by_shape(
    graph: Graph, nodes: Collection[int], *, length: SizeExpr, step: str, inputs: Mapping[int, Along]
) -> Rewrite:
    """The rewrite that runs some nodes of a graph in parts of a length that each call chooses.

    Args:
        graph: in which the nodes are; it declares its dims.
        nodes: the region.
        length: of the axis.
        step: name of the dim that says how long a part is; no dim of the graph has it.
        inputs: by value that is handed to the region in parts, where the axis lies in it; others are handed over whole.
    """
    members = tuple(sorted(nodes))
    places = places_of(graph, members)
    runs = [(*places[value], along.dim) for value, along in inputs.items() if value in places]
    settings: tuple[tuple[str, Setting], ...] = (
        ("inputs", tuple(number for run in sorted(runs) for number in run)),
        ("length", str(length)),
        ("step", step),
    )
    return Rewrite(FissionByShape().name, members, settings, keeps_bits=False)


def by_chance(graph: Graph, shapes: Sequence[Binding]) -> list[Binding]:
    """Some shapes, those first at which fewest sizes are equal to others of a graph by chance."""
    numbers = {e.constant_value() for v in graph.values for e in v.shape if e.is_constant}

    def chances(shape: Binding) -> int:
        sizes = list(shape.values())
        return sum(size in numbers for size in sizes) + len(sizes) - len(set(sizes))

    return sorted(shapes, key=chances)


def _length(graph: Graph, found: Setting) -> SizeExpr:
    if not isinstance(found, str):
        raise RewriteError("its setting length is no expression in dims")
    length = parse_size_expr(found)
    if unknown := sorted(length.dims() - {dim.name for dim in graph.dims}):
        raise RewriteError(f"the graph declares no dim {unknown[0]}")
    return length


def _new_dim(graph: Graph, found: Setting) -> str:
    if not isinstance(found, str):
        raise RewriteError("its setting step names no dim")
    if found in {dim.name for dim in graph.dims}:
        raise RewriteError(f"the graph has a dim {found} already")
    SizeExpr.dim(found)
    return found


def _telling(graph: Graph, store: SizeRelations, length: SizeExpr) -> list[Binding]:
    """Sample shapes with at least two elements of an axis, those first at which fewest extents are equal by chance."""
    return by_chance(graph, [shape for shape in store.samples() if length.evaluate(shape) > 1])

"""Fission: a region of the graph runs in parts along an axis, as one loop. Prices choose its places.

Fission of MAGIS (Chen et al., ASPLOS 2024), as a loop instead of an unrolled graph, for parts of any length; `windows` is the
halo of a tiled convolution, for any chain of windows (fused-layer tiling: Alwani et al., MICRO 2016). Where the axis lies in
values that are made inside, and which results are sums, follows from the op table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeVar

from neaptide.analysis.axes.follow import Carried, follow
from neaptide.analysis.axes.windows import Scaled
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along, Need
from neaptide.ir.edits.edit import Edited
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import Binding
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value
from neaptide.ops.dialect import dialect_of
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.parsing import parse_size_expr
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.loop import extract_loop, extract_window_loop
from neaptide.transform.fission.split import Split
from neaptide.transform.node_rule import region_rule
from neaptide.transform.rewrite import Rewrite, Rule, Setting, Sizes, refused

At = TypeVar("At")

_SHAPES: Final = 3  # at which `fission_by_shape` asks rows of the op table; they must agree
_INPUTS: Final = "inputs"
"""The setting: runs of (node, place, ...) for each value that is handed over in parts. A node is its position in the rewrite's
nodes; place -1 is its first input, -2 its second. The rest of a run says where the axis lies in the value."""

_WORDS = {
    Need.COMPLETE: "needs a sum over all parts before they are there",
    Need.MEAN: "takes a mean: that of a part is none of the whole (`mean_to_sum` makes it a sum)",
    Need.ADDEND: "adds an operand that each part would add once more",
    Need.RANDOM: "draws random numbers: in parts it would draw others",
    Need.HALO: "needs the edge of the parts next to its own",
}


def fission(
    graph: Graph, nodes: Collection[int], *, length: int, parts: int, inputs: Mapping[int, Along]
) -> Rewrite:
    """The rewrite that runs some nodes of a graph in parts along an axis of a length: `parts` at most, each as long as the first
    but for the last, which may be shorter. `inputs` are handed over in parts, others whole.

    In the body of a loop whose last part is shorter, `length` and `parts` are those in a full part. An axis that the loop
    around has cut is shorter in the last part, and makes fewer parts there, of the same length.
    """
    where = {value: (along.dim, along.outer) for value, along in inputs.items()}
    return _rewrite(FISSION, graph, nodes, where, length=length, parts=parts)


def fission_by_shape(
    graph: Graph, nodes: Collection[int], *, length: SizeExpr, step: str, inputs: Mapping[int, Along]
) -> Rewrite:
    """The same, in parts of a length that each call chooses: `step` names the dim that says how long, from 1 to the length, and
    that no dim of the graph is called. So the number of parts is an expression in dims, and one loop runs in one part or in many.

    What carries the axis is asked at a few shapes, and must be the same at all of them. That each part has the extents and
    arguments that it needs is then checked as expressions, for all shapes.
    """
    where = {value: (along.dim,) for value, along in inputs.items()}
    return _rewrite(FISSION_BY_SHAPE, graph, nodes, where, length=str(length), step=step)


def windows(graph: Graph, nodes: Collection[int], *, parts: int, inputs: Mapping[int, Scaled]) -> Rewrite:
    """The same along an axis that sliding windows read: parts overlap, and what lies in two of them is made twice."""
    where = {value: (at.dim, at.scale.numerator, at.scale.denominator) for value, at in inputs.items()}
    return _rewrite(WINDOWS, graph, nodes, where, parts=parts)


def _rewrite(
    rule: Rule,
    graph: Graph,
    nodes: Collection[int],
    inputs: Mapping[int, tuple[int, ...]],
    **settings: Setting,
) -> Rewrite:
    members = tuple(sorted(nodes))
    places: dict[int, tuple[int, int]] = {}  # by operand, where it is taken first
    for position, number in enumerate(members):
        for slot, value in enumerate(graph.nodes[number].inputs):
            places.setdefault(value, (position, -slot - 1))
    runs = sorted((*places[value], *where) for value, where in inputs.items() if value in places)
    settings[_INPUTS] = tuple(number for run in runs for number in run)
    return Rewrite(rule.name, members, tuple(sorted(settings.items())), keeps_bits=False)


def _in_parts(graph: Graph, registry: OpRegistry, rewrite: Rewrite, sizes: Sizes) -> Edited:
    length, parts = _settings(rewrite, length=int, parts=int)
    if not 2 <= parts <= length:
        raise RewriteError(f"an axis of {length} cannot be split into {parts} parts")
    seeds = _seeds(graph, rewrite, 4, lambda _, dim, outer: Along(dim, outer) if outer >= 1 else None)
    extent, step = _extent(graph, seeds, length, sizes), -(-length // parts)
    # What is not cut somewhere is what it was.
    cut = [sizes[0], *(other for other in sizes[1:] if extent.evaluate(other) > step)]
    where = "in the shorter last part of the loop around it"
    split = _split(graph, registry, rewrite, (extent, SizeExpr.const(step)), seeds, cut, where)
    return extract_loop(graph, registry, rewrite.nodes, split)


def _extent(graph: Graph, seeds: Mapping[int, Along], length: int, sizes: Sizes) -> SizeExpr:
    """The length of the axis, whatever the part of a loop around is."""
    for value, along in seeds.items():
        shape = graph.values[value].shape
        if 0 <= along.dim < len(shape) and not shape[along.dim].is_constant:
            extent = shape[along.dim]
            elements = extent.evaluate(sizes[0]) // length
            found = extent // elements if elements else extent
            if found * elements == extent and found.evaluate(sizes[0]) == length:
                return found
            raise RewriteError(
                f"an axis of {length} is not as many times in dim {along.dim} of"
                f" %{graph.values[value].name} in each part"
            )
    return SizeExpr.const(length)


def _in_parts_by_shape(graph: Graph, registry: OpRegistry, rewrite: Rewrite, _: Sizes) -> Edited:
    written, step = _settings(rewrite, length=str, step=str)
    length, known = parse_size_expr(written), {dim.name for dim in graph.dims}
    if unknown := sorted(length.dims() - known):
        raise RewriteError(f"the graph declares no dim {unknown[0]}")
    if step in known:
        raise RewriteError(f"the graph has a dim {step} already")
    seeds = _seeds(graph, rewrite, 3, lambda _, dim: Along(dim))
    store, axis = SizeRelations(graph.dims, graph.relations), (length, SizeExpr.dim(step))
    shapes = by_chance(graph, [shape for shape in store.samples() if length.evaluate(shape) > 1])[:_SHAPES]
    if not shapes:
        raise RewriteError(f"an axis of {length} has no two elements at any shape")
    split = _split(graph, registry, rewrite, axis, seeds, shapes, "at another shape")
    return extract_loop(graph, registry, rewrite.nodes, split, Dim(step, 1, store.bound(length).high))


def by_chance(graph: Graph, shapes: Sequence[Binding]) -> list[Binding]:
    """Some shapes, those first at which fewest sizes are equal to others of a graph by chance."""
    numbers = {e.constant_value() for v in graph.values for e in v.shape if e.is_constant}

    def chances(shape: Binding) -> int:
        sizes = list(shape.values())
        return sum(size in numbers for size in sizes) + len(sizes) - len(set(sizes))

    return sorted(shapes, key=chances)


def _in_overlapping_parts(graph: Graph, registry: OpRegistry, rewrite: Rewrite, _: Sizes) -> Edited:
    (parts,) = _settings(rewrite, parts=int)
    return extract_window_loop(graph, registry, rewrite.nodes, _seeds(graph, rewrite, 5, _scaled), parts)


def _scaled(value: Value, dim: int, above: int, below: int) -> Scaled | None:
    is_there = min(above, below) >= 1 and 0 <= dim < len(value.shape)
    return Scaled(dim, Fraction(above, below)) if is_there else None


FISSION: Final = region_rule("fission", "a region runs in parts", _in_parts)
FISSION_BY_SHAPE: Final = region_rule(
    "fission_by_shape", "a region runs in as many parts as the shape of a call needs", _in_parts_by_shape
)
WINDOWS: Final = region_rule("windows", "a region runs in parts that overlap", _in_overlapping_parts)


def _settings(rewrite: Rewrite, **kinds: type) -> list[Any]:
    """The settings of a rewrite beside its inputs; it has no others."""
    settings = dict(rewrite.settings)
    if list(settings) != sorted((*kinds, _INPUTS)) or len(set(rewrite.nodes)) < len(rewrite.nodes):
        raise RewriteError(f"it must name nodes, each once, and the settings inputs, {', '.join(kinds)}")
    for name, kind in kinds.items():
        if type(settings[name]) is not kind:
            raise RewriteError(f"its setting {name} is no {'number' if kind is int else 'text'}")
    return [settings[name] for name in kinds]


def _seeds(graph: Graph, rewrite: Rewrite, length: int, where: Callable[..., At | None]) -> dict[int, At]:
    """By value that is handed over in parts, where the axis lies in it, as `where` reads the rest of a run."""
    if not dialect_of(graph).has_loops:
        raise RewriteError("its operations run in parts as passes have it, without a loop")
    found = dict(rewrite.settings)[_INPUTS]
    if not isinstance(found, tuple) or len(found) % length or not rewrite.nodes:
        raise RewriteError(f"its setting inputs is no list of runs of {length} numbers")
    seeds: dict[int, At] = {}
    for begin in range(0, len(found), length):
        position, place, *rest = found[begin : begin + length]
        if not 0 <= position < len(rewrite.nodes):
            raise RewriteError(f"it has no node {position}")
        node, slot = graph.nodes[rewrite.nodes[position]], -place - 1
        if not 0 <= slot < len(node.inputs):
            raise refused(node, f"has no place {place}")
        value = node.inputs[slot]
        at = where(graph.values[value], *rest)
        if at is None or seeds.setdefault(value, at) != at:
            raise RewriteError(
                f"%{graph.values[value].name} is handed over along two axes, or along one that it does not have"
            )
    return seeds


def _split(
    graph: Graph,
    registry: OpRegistry,
    rewrite: Rewrite,
    axis: tuple[SizeExpr, SizeExpr],
    seeds: Mapping[int, Along],
    sizes: Sequence[Binding],
    elsewhere: str,
) -> Split:
    """What rows of the op table say of a region in parts, under each of some sizes; `axis` are its length and that of a part."""
    length, step = axis
    carried, *others = (
        _followed(graph, registry, rewrite.nodes, seeds, length, binding) for binding in sizes
    )
    if any(_alike(other) != _alike(carried) for other in others):
        raise RewriteError(f"{elsewhere}, the axis lies elsewhere")
    numbers = {node: line.axis.sizes for node, line in carried.members.items()}
    return Split(length, step, carried.axes, carried.sums, numbers)


def _alike(carried: Carried) -> tuple[object, ...]:
    dims = {value: along.dim for value, along in carried.axes.items()}
    return dims, carried.sums, carried.members.keys()


def _followed(
    graph: Graph,
    registry: OpRegistry,
    nodes: Collection[int],
    seeds: Mapping[int, Along],
    length: SizeExpr,
    binding: Binding,
) -> Carried:
    carried = follow(with_sizes(graph, binding), registry, seeds, length.evaluate(binding), nodes)
    reasons = [(barrier.node, barrier.reason) for barrier in carried.barriers]
    reasons += [(condition.node, _WORDS[condition.need]) for condition in carried.conditions]
    idle = "does not depend on the axis, and would run whole in each part"
    reasons += [(number, idle) for number in sorted(carried.untouched.intersection(nodes))]
    if reasons:
        node, reason = graph.nodes[reasons[0][0]], reasons[0][1]
        raise refused(node, f"{reason}")
    inside = frozenset(nodes)
    needed = {v for node in graph.nodes if node.id not in inside for v in node.inputs} | {*graph.outputs}
    if outside := carried.private & needed:
        name = graph.values[min(outside)].name
        raise RewriteError(f"%{name} means something within its part only, and leaves the region")
    return carried

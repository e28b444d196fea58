"""How the parts of a loop lie in its inputs and results, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Loop, Node, SliceMap
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr

_MERGES = frozenset({"concat", "sum"})

Binding = Mapping[str, int]
"""Values of symbolic dims."""


@dataclass(frozen=True, slots=True)
class PartDim:
    """A dim of a body that follows from the length of a part: the part is `scale * dim + rest` elements long."""

    dim: str
    scale: SizeExpr
    rest: SizeExpr


def part_dim(extent: SizeExpr, known: frozenset[str]) -> PartDim | None:
    """The dim that the extent of a part tells; None when it tells none.

    A dim that is an extent all by itself is told by it, whatever the graph around the loop calls by that name; of other
    extents, the one dim that is not `known` there and in which the extent is linear.
    """
    dims = extent.dims()
    if len(dims) == 1 and extent == SizeExpr.dim(next(iter(dims))):
        return PartDim(next(iter(dims)), SizeExpr.const(1), SizeExpr.const(0))
    for dim in sorted(dims - known):
        rest = extent.substitute({dim: 0})
        scale = extent.substitute({dim: 1}) - rest
        if scale * SizeExpr.dim(dim) + rest == extent:
            return PartDim(dim, scale, rest)
    return None


def chosen_dims(graph: Graph) -> tuple[str, ...]:
    """Dims that no input of a graph has and that say how long the parts of its loops are: calls choose them."""
    told = {dim for v in graph.inputs for extent in graph.values[v].shape for dim in extent.dims()}
    steps = (part.step for node in graph.nodes for loop in node.regions for part in loop.slices)
    return tuple(sorted({dim for step in steps for dim in step.dims()} - told))


def own_length(part: SliceMap, whole: Value) -> SizeExpr:
    """Elements of a sliced input that are shared out among the trips: all but the halo at both ends."""
    return whole.shape[part.axis] - part.halo


def trips(
    graph: Graph, node: Node, loop: Loop, binding: Binding | None = None
) -> Iterator[tuple[int, dict[str, int]]]:
    """Numbers of trips and the sizes of the body in them: the full parts, and the last one where it is shorter.

    A dim of the body that follows from the length of a part (see `part_dim`) is bound by it; all others
    are those of the graph around it. O(slices).

    Raises:
        SymbolicError: a dim of the graph around the loop has no value.
    """
    around = binding or {}
    count = loop.trip_count.evaluate(around)
    full, last = dict(around), dict(around)
    for part in loop.slices:
        extent = loop.body.values[loop.body.inputs[part.input]].shape[part.axis]
        told = part_dim(extent, frozenset(around))
        if told is None:
            continue
        step = part.step.evaluate(around)
        length = own_length(part, graph.values[node.inputs[part.input]]).evaluate(around)
        scale, rest = told.scale.evaluate(around), told.rest.evaluate(around)
        full[told.dim] = (min(step, length) + part.halo - rest) // scale
        last[told.dim] = (length - (count - 1) * step + part.halo - rest) // scale
    if full == last:
        yield count, full
        return
    if count > 1:
        yield count - 1, full
    yield 1, last


def faults_of_maps(graph: Graph, node: Node, loop: Loop) -> Iterator[str]:
    """What is wrong with the slices and merges of a loop, as sentences. O(inputs + outputs)."""
    yield from _faults_of_slices(graph, node, loop)
    sliced = {part.input for part in loop.slices}
    for position, number in enumerate(node.inputs):
        outer, inner = graph.values[number], loop.body.values[loop.body.inputs[position]]
        if outer.dtype != inner.dtype or len(outer.shape) != len(inner.shape):
            yield f"input {position} of the body differs from the loop's in dtype or number of axes"
        elif position not in sliced and outer.shape != inner.shape:
            yield f"input {position} is handed over whole, but the body expects another shape"
    for position, (merge, number) in enumerate(zip(loop.merges, loop.destinations(), strict=True)):
        if merge.how not in _MERGES:
            yield f"a merge is {merge.how!r}; one of {', '.join(sorted(_MERGES))}"
            continue
        outer, inner = graph.values[node.outputs[merge.output]], loop.body.values[number]
        if outer.dtype != inner.dtype or len(outer.shape) != len(inner.shape):
            yield f"destination {position} of the body differs from the loop's result in dtype or number of axes"
        elif merge.how == "sum" and outer.shape != inner.shape:
            yield f"destination {position} of the body is summed into a result of another shape"
        elif merge.how == "concat" and not 0 <= merge.axis < len(outer.shape):
            yield f"destination {position} of the body is joined along axis {merge.axis}, which does not exist"


def faults_of_effects(_graph: Graph, node: Node, loop: Loop) -> Iterator[str]:
    """Random streams, process groups and reads by the host that the body has and the loop does not say."""
    for inner in loop.body.nodes:
        within, around = inner.effects, node.effects
        if within.rng not in (None, around.rng):
            yield f"the body of the loop draws from {within.rng}, which the loop does not say"
        if within.collective not in (None, around.collective):
            yield f"the body of the loop takes part in {within.collective}, which the loop does not say"
        if within.host and not around.host:
            yield "the body of the loop talks to the host, which the loop does not say"


def faults_of_writes(graph: Graph, node: Node, loop: Loop) -> Iterator[str]:
    """Storages of the graph around that a body writes, or does not write, against what the loop says."""
    body = loop.body
    written = {access.storage for inner in body.nodes for access in inner.effects.writes}
    for merge, number in zip(loop.merges, loop.destinations(), strict=True):
        if body.values[number].storage not in written:
            yield f"the body never writes result {merge.output} of the loop"
    overlapping = {node.inputs[part.input] for part in loop.slices if part.halo}
    seen = {graph.values[value].storage for value in loop.written_inputs(node.inputs)}
    if seen - {access.storage for access in node.effects.writes}:
        yield "the body of the loop overwrites one of its inputs, which the loop does not say"
    if overlapping.intersection(loop.written_inputs(node.inputs)):
        yield "the body of the loop overwrites an input whose parts overlap"


def _faults_of_slices(graph: Graph, node: Node, loop: Loop) -> Iterator[str]:
    sliced: set[int] = set()
    for part in loop.slices:
        if not 0 <= part.input < len(node.inputs):
            yield f"the loop slices input {part.input}, which does not exist"
        elif part.input in sliced:
            yield f"the loop slices input {part.input} twice"
        elif not 0 <= part.axis < len(graph.values[node.inputs[part.input]].shape):
            yield f"the loop slices axis {part.axis} of input {part.input}, which does not exist"
        elif part.before < 0 or part.after < 0:
            yield f"the loop slices input {part.input} with a negative halo"
        else:
            inner = loop.body.values[loop.body.inputs[part.input]]
            yield from _faults_of_cover(part, graph.values[node.inputs[part.input]], inner, loop.trip_count)
        sliced.add(part.input)


def _faults_of_cover(part: SliceMap, whole: Value, inner: Value, trip_count: SizeExpr) -> Iterator[str]:
    length = own_length(part, whole)
    if not (length.is_constant and part.step.is_constant and trip_count.is_constant):
        return
    step, count = part.step.constant_value(), trip_count.constant_value()
    if not (count - 1) * step < length.constant_value() <= count * step:
        yield f"{count} parts of {step} do not make up the {length} elements of input {part.input}"
    elif part.axis < len(inner.shape) and inner.shape[part.axis].is_constant:
        first, last = min(step, length.constant_value()), length.constant_value() - (count - 1) * step
        if not first == last == inner.shape[part.axis].constant_value() - part.halo:
            yield f"input {part.input} of the body is as long in each trip, and not as the parts are"


def faults_of_joins(graph: Graph, node: Node, loop: Loop) -> Iterator[str]:
    """Results whose parts do not make them up: some elements would never be written. Where sizes are constant."""
    sizes = [loop.trip_count, *(part.step for part in loop.slices)]
    for part in loop.slices:
        sizes.append(own_length(part, graph.values[node.inputs[part.input]]))
        extent = loop.body.values[loop.body.inputs[part.input]].shape[part.axis]
        sizes += [SizeExpr.dim(dim) for dim in sorted(extent.dims())[1:]]  # one of them is told by the part
    if not all(size.is_constant for size in sizes):
        return
    found = list(trips(graph, node, loop))
    for merge, number in zip(loop.merges, loop.destinations(), strict=True):
        if merge.how != "concat":
            continue
        whole = graph.values[node.outputs[merge.output]].shape[merge.axis]
        extent = loop.body.values[number].shape[merge.axis]
        if whole.is_constant and extent.dims() <= found[0][1].keys():
            total = sum(count * extent.evaluate(dims) for count, dims in found)
            if total != whole.constant_value():
                yield f"the parts of result {merge.output} make up {total} of its {whole} elements"

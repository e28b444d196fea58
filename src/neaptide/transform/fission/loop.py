"""A region of a graph becomes one loop that runs it in parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from neaptide.analysis.axes.windows import Scaled
from neaptide.errors import RewriteError
from neaptide.ir.axes import Along
from neaptide.ir.edits.edit import Edited, GraphEdit, NodeDraft
from neaptide.ir.graph import Graph
from neaptide.ir.loops.body import with_destinations
from neaptide.ir.nodes import LOOP_OP, Loop, MergeMap, Named, Ref, SliceMap
from neaptide.ir.registry import OpRegistry
from neaptide.ir.values import Value, contiguous_strides
from neaptide.ops.structural import CONSTANT_OP
from neaptide.symbolic.dims import Dim
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.transform.fission.body import Part, PartBody
from neaptide.transform.fission.intervals import window_region
from neaptide.transform.fission.region import Region, find_region, made_by
from neaptide.transform.fission.split import PartShapes, Split, is_dense
from neaptide.transform.fission.window_body import Beside, WindowBody, WindowShapes

_ZERO = SizeExpr.const(0)


def extract_loop(
    graph: Graph, registry: OpRegistry, nodes: Collection[int], split: Split, dim: Dim | None = None
) -> Edited:
    """Put one loop in the place of some nodes. O(size of the graph).

    The loop stands where the last of them stood; nodes in between that need its results follow it. Its results are the
    values that left the region before, under their ids. What is computed is the same only if `split` is right about the
    mathematics: that each member, run on parts, makes parts of what carries the axis and terms of what is a sum. Nothing
    here can check that; running both can. Views at the border of the region stay outside.
    """
    region = find_region(graph, registry, nodes, split.axes, split.sums)
    shapes = PartShapes(graph, registry, split)
    return _put_loop(graph, region, shapes, PartBody(graph, registry, shapes).build(region), dim=dim)


def extract_window_loop(
    graph: Graph, registry: OpRegistry, nodes: Collection[int], seeds: Mapping[int, Scaled], parts: int
) -> Edited:
    """Put one loop in the place of some nodes, whose windows read elements of neighbouring parts. O(size of the graph).

    Elements that two parts read are made in both.
    """
    region, axis, intervals = window_region(graph, registry, nodes, seeds)
    units = intervals.units
    if not 2 <= parts <= units:
        raise RewriteError(f"an axis of {units} cannot be split into {parts} parts")
    sizes = {node: line.sizes for node, line in axis.members.items()}
    axes = {value: Along(axis.values[value].dim) for value in intervals.made}
    split = Split(SizeExpr.const(units), SizeExpr.const(-(-units // parts)), axes, region.sums, sizes)
    shapes = WindowShapes(graph, registry, split, intervals, axis.members)
    body = WindowBody(graph, registry, shapes)
    return _put_loop(graph, region, shapes, body.build(region), tuple(body.handed_beside))


def _put_loop(
    graph: Graph,
    region: Region,
    shapes: PartShapes,
    part: Part,
    beside: Sequence[Beside] = (),
    dim: Dim | None = None,
) -> Edited:
    """The graph with a loop over some body in the place of a region. A trip is handed what the region is, and what lies beside."""
    split = shapes.split
    values = [graph.values[number] for number in region.outputs]
    for value in values:
        if not is_dense(value):
            raise RewriteError(f"%{value.name} leaves the region and does not fill its bytes")
    merges = tuple(
        MergeMap(slot, "sum")
        if value.id in region.sums
        else MergeMap(slot, "concat", split.axes[value.id].dim)
        for slot, value in enumerate(values)
    )
    edit = GraphEdit(graph)
    if dim is not None:
        edit.declare(dim)
    results = [_result(edit, graph, value) for value in values]
    wholes = [
        (value, graph.storages[old.storage])
        for value, old in zip(results, values, strict=True)
        if old.storage is not None
    ]
    results_in = [(v, replace(s, nbytes=v.nbytes)) for v, s in wholes]
    body = with_destinations(part.graph, merges, results_in, part.output_of)
    slices = [
        SliceMap(position, split.axes[number].dim, shapes.step(graph.values[number]))
        for position, number in enumerate(region.inputs)
        if shapes.is_sliced(number)
    ]
    first = len(region.inputs)
    slices += [
        SliceMap(first + k, 0, made.interval.scale * split.step, 0, made.interval.beyond)
        for k, made in enumerate(beside)
    ]
    loop = Loop(body, split.trip_count, tuple(slices), merges)
    last = graph.nodes[region.moved[-1]]
    further = [made.make(edit, last.id, last.source) for made in beside]
    _place(edit, graph, region, loop, results, further)
    return edit.finish()


def _result(edit: GraphEdit, graph: Graph, value: Value) -> Value:
    """The value that stands for an output of the region: itself, or a new one where its storage was larger than it."""
    assert value.storage is not None
    storage = graph.storages[value.storage]
    if storage.nbytes == value.nbytes and value.offset == _ZERO:
        return value
    number = edit.fresh(
        value.name,
        value.dtype,
        value.shape,
        device=storage.device,
        kind=storage.kind,
        strides=value.strides,
        nbytes=value.nbytes,
    )
    edit.replace_uses(value.id, number)
    return replace(value, id=number, offset=_ZERO)


def _place(
    edit: GraphEdit, graph: Graph, region: Region, loop: Loop, results: list[Value], beside: Sequence[int]
) -> None:
    last = region.moved[-1]
    late = made_by(graph, (*region.moved, *region.behind))
    lost = made_by(graph, region.moved).difference(region.outputs)
    now = dict(zip(region.outputs, (value.id for value in results), strict=True))
    gone = {*region.moved, *region.dead}
    inputs = [_stand_in(edit, graph, v, last) if v in late else v for v in region.inputs]
    inputs += beside
    for number in sorted(gone - {last}):
        edit.remove(number)
    for node in graph.nodes:
        if node.id in gone:
            continue
        # In front of the loop nothing but the shape of what comes after can be used, else it would be after as well.
        in_front = node.id < last and node.id not in region.behind
        for number in sorted((late if in_front else lost).intersection(node.inputs)):
            stand_in = _stand_in(edit, graph, number, node.id)
            edit.replace_uses(now.get(number, number), stand_in, [node.id], outputs=False)
    source = graph.nodes[last].source
    edit.replace_node(
        last,
        NodeDraft(
            LOOP_OP,
            tuple(inputs),
            tuple(value.id for value in results),
            tuple(Ref(slot) for slot in range(len(inputs))),
            reads=tuple(loop.read_inputs(inputs)),
            writes=tuple(loop.written_inputs(inputs)),
            source=source,
            regions=(loop,),
        ),
    )
    for number in region.behind:
        edit.move_after(number, last)


def _stand_in(edit: GraphEdit, graph: Graph, number: int, anchor: int) -> int:
    """A value of the same shape that one element holds, for a use that needs no more; made in front of `anchor`."""
    value = graph.values[number]
    if value.storage is None or value.strides != contiguous_strides(value.shape):
        raise RewriteError(f"%{value.name} is used for its shape in front of the loop, and is not contiguous")
    if not all(extent.is_constant for extent in value.shape):
        raise RewriteError(
            f"%{value.name} is used for its shape in front of the loop, and its size is not known"
        )
    device = graph.storages[value.storage].device
    one = SizeExpr.const(1)
    made = edit.fresh(
        f"shape_of_{value.name}",
        value.dtype,
        value.shape,
        device=device,
        strides=[_ZERO] * len(value.shape),
        nbytes=replace(value, shape=(), strides=()).nbytes * one,
    )
    shape = tuple(extent.constant_value() for extent in value.shape)
    arguments = ((0,), shape, Named("dtype", value.dtype), Named("device", device))
    edit.insert_before(
        anchor, NodeDraft(CONSTANT_OP, (), (made,), arguments, reads=(), source=graph.nodes[anchor].source)
    )
    return made

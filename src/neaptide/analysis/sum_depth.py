"""How many terms one number of a program is a sum of. The rounding of a sum grows with them.

Rows of the op table say which axes an operation adds up (`Merge.SUM`), which windows it reads, and which axes it needs
whole. What they leave out follows from counts of operations or of elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from neaptide.ir.axes import Merge, OpAxis
from neaptide.ir.edits.with_sizes import with_sizes
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import trips
from neaptide.ir.nodes import Loop, Node
from neaptide.ir.registry import Call, OpRegistry, OpSpec, Trait
from neaptide.ir.values import Value

# They take numbers as they are, or one by one.
_NO_SUMS = (Trait.VIEW, Trait.COPY, Trait.FACTORY, Trait.GATHER, Trait.HOST_SCALAR, Trait.ELEMENTWISE)
_PRODUCTS = (Trait.CONTRACTION, Trait.CONVOLUTION)
# An axis that they need whole is one that they add up.
_ADD_UP_WHOLE = (Trait.NORMALISATION, Trait.ATTENTION, Trait.RECURRENT)


def deepest_sum(graph: Graph, registry: OpRegistry) -> int:
    """The most terms that one element of a result is a sum of, over all operations; at least 1. O(size * dims).

    A product of matrices has as many terms as its inner axis has elements, a convolution as many as its window and its
    channels together, a reduction as many as it reduces. Softmax and norms add up the axis that they need whole. A loop
    that adds up its parts has a term for each trip, beside those of its body. Whole numbers are added exactly and do not
    count; zeros of padding do. An operation without a row has as many terms as it has elements of the largest operand for
    one of a result.

    >>> from neaptide.ir.builder import GraphBuilder
    >>> from neaptide.ops import registry
    >>> b = GraphBuilder("product")
    >>> made = b.node("aten.mm.default", b.input("x", (4, 8)), b.input("w", (8, 3)), outputs=["y: f32[4, 3]"])
    >>> deepest_sum(b.finish(), registry())
    8
    """
    return max((_of_node(graph, node, registry) for node in graph.nodes), default=1)


def _of_node(graph: Graph, node: Node, registry: OpRegistry) -> int:
    if node.regions:
        return max(_of_loop(graph, node, loop, registry) for loop in node.regions)
    call, spec = Call(graph, node), registry.find(node.op)
    return max((_of_result(call, spec, number) for number in _rounded_results(call)), default=1)


def _of_loop(graph: Graph, node: Node, loop: Loop, registry: OpRegistry) -> int:
    adds = any(merge.how == "sum" for merge in loop.merges)
    within = max(deepest_sum(with_sizes(loop.body, sizes), registry) for _, sizes in trips(graph, node, loop))
    return within + (loop.trip_count.constant_value() if adds else 0)


def _rounded_results(call: Call) -> Iterator[int]:
    for number, value in enumerate(call.outputs()):
        if not value.is_host_scalar and _is_rounded(value) and _elements(value):
            yield number


def _of_result(call: Call, spec: OpSpec | None, number: int) -> int:
    if spec is None:
        return _elements_for_one(call, number)
    if any(spec.is_a(trait) for trait in _NO_SUMS):
        return 1
    if spec.axes is None:
        return _operations_for_one(call, spec, number) or _elements_for_one(call, number)
    axes = () if spec.axes.axes is None else tuple(spec.axes.axes(call))
    found = _told(call, spec, axes, number)
    if not any(axis.results[number] is Merge.SUM for axis in axes):
        found = max(found, _operations_for_one(call, spec, number))
    return max(found, _elements_for_one(call, number)) if _reduces(spec, axes) else found


def _reduces(spec: OpSpec, axes: tuple[OpAxis, ...]) -> bool:
    """Whether each element of the operand is a term of one element of a result, and the row leaves some of them out."""
    if spec.is_a(Trait.REDUCTION):
        return not any(isinstance(how, Merge) for axis in axes for how in axis.results.values())
    if spec.is_a(Trait.POOLING):
        return _is_linear(spec) and all(axis.window is None for axis in axes)
    return spec.is_a(Trait.NORMALISATION)


def _told(call: Call, spec: OpSpec, axes: tuple[OpAxis, ...], number: int) -> int:
    """Terms that the axes of a row tell."""
    outside = inside = 1
    seen: set[tuple[int, int]] = set()
    for axis in axes:
        how = axis.results[number]
        if how is Merge.SUM or (how is Merge.SAME and axis.whole and _adds_up_whole(spec)):
            places = set(axis.operands.items())
            if not places <= seen:
                outside *= _extent(call, axis)
            seen |= places
        elif not isinstance(how, Merge) and axis.window is not None:
            if spec.is_a(Trait.CONVOLUTION) or _is_linear(spec):
                outside *= _read_for_one(call, axis, call.output(number), how)
        elif not isinstance(how, Merge) and axis.whole and _adds_up_whole(spec):
            inside *= _extent(call, axis)
    return max(outside, inside)


def _adds_up_whole(spec: OpSpec) -> bool:
    return _is_linear(spec) or any(spec.is_a(trait) for trait in _ADD_UP_WHOLE)


def _is_linear(spec: OpSpec) -> bool:
    return spec.axes is not None and bool(spec.axes.linear)


def _extent(call: Call, axis: OpAxis) -> int:
    """Elements of an axis that is added up; a window reads others, and as many of them as there are places."""
    read = () if axis.window is None else axis.window.operands
    found = [_length(call, slot, dim) for slot, dim in axis.operands.items() if slot not in read]
    return max(found or [_length(call, slot, dim) for slot, dim in axis.operands.items()], default=1)


def _read_for_one(call: Call, axis: OpAxis, made: Value, dim: int) -> int:
    """Terms along a window: elements that it reads; where the result is what windows read, those that read an element."""
    assert axis.window is not None
    window = axis.window
    if window.inverse:
        return 1
    read = {_length(call, slot, axis.operands[slot]) for slot in window.operands if slot in axis.operands}
    if read != {made.shape[dim].constant_value()}:
        return window.kernel
    apart = window.stride // math.gcd(window.stride, window.dilation)
    return -(-window.kernel // apart)


def _operations_for_one(call: Call, spec: OpSpec, number: int) -> int:
    """Products that are added up for one element, of an operation with one result; 0 where that is not known."""
    if len(call.node.outputs) != 1 or not any(spec.is_a(trait) for trait in _PRODUCTS):
        return 0
    return spec.flops(call).constant_value() // (2 * _elements(call.output(number)))


def _elements_for_one(call: Call, number: int) -> int:
    """Elements of the largest operand for one of a result, rounded up."""
    given = max((_elements(value) for value in call.inputs() if _is_rounded(value)), default=1)
    return max(1, -(-given // _elements(call.output(number))))


def _length(call: Call, slot: int, dim: int) -> int:
    return call.graph.values[call.node.inputs[slot]].shape[dim].constant_value()


def _elements(value: Value) -> int:
    return math.prod(extent.constant_value() for extent in value.shape)


def _is_rounded(value: Value) -> bool:
    return value.dtype.startswith(("float", "bfloat", "complex"))

"""Relations between dims that the operations of a graph imply: BladeDISC++'s symbolic shape graph, derived.

A dim of a value that was captured with a symbol of its own is tied to others by what happens to the value: a reshape keeps
the number of elements, a product of matrices needs equal inner dims, what is joined is as long as its parts together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import Call, OpRegistry, OpSpec, Trait
from neaptide.ops.size_rules import SIZE_FACTS, SizeFacts
from neaptide.symbolic.dims import Relation
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr
from neaptide.symbolic.solving import without_common_factor

_ONE = SizeExpr.const(1)


def with_implied_relations(
    graph: Graph, registry: OpRegistry, facts: Mapping[str, SizeFacts] = SIZE_FACTS
) -> Graph:
    """The graph with the relations that its operations imply and that do not follow from those before. O(nodes x dims).

    Args:
        graph: with declared dims.
        registry: what its operations mean.
        facts: by operation, equalities beside those of its row of axes.

    Raises:
        SymbolicError: no shape in the ranges keeps what the operations imply.
    """
    if not graph.dims:
        return graph
    relations = list(graph.relations)
    store = SizeRelations(graph.dims, relations)
    for node in graph.nodes:
        for relation in implied_by(graph, node, registry, facts, store):
            if store.is_equal(relation.left, relation.right) is not True:
                relations.append(_simplest(relation))
                store = SizeRelations(graph.dims, relations)
    return replace(graph, relations=tuple(relations))


def implied_by(
    graph: Graph, node: Node, registry: OpRegistry, facts: Mapping[str, SizeFacts], store: SizeRelations
) -> Iterator[Relation]:
    """What one call implies, whether it is known or not.

    Args:
        graph: the program.
        node: of it.
        registry: what operations mean; one without a row implies what `facts` say of it.
        facts: by operation.
        store: what is known so far: where an extent may be 1, it may be broadcast, and nothing follows.
    """
    call, spec = Call(graph, node), registry.find(node.op)
    if node.op in facts:
        yield from facts[node.op](call)
    if spec is not None:
        yield from _by_row(call, spec)
        if spec.is_a(Trait.ELEMENTWISE):
            yield from _broadcast(call, store)


def _by_row(call: Call, spec: OpSpec) -> Iterator[Relation]:
    """The same number of elements where a row regroups them; equal extents along each of its axes."""
    row = spec.axes
    if row is None:
        return
    inputs, outputs = call.inputs(), call.outputs()
    if row.regroups and inputs and outputs:
        yield Relation(inputs[0].numel, outputs[0].numel)
    for axis in row.axes(call) if row.axes is not None else ():
        if axis.window is None:
            extents = [inputs[slot].shape[dim] for slot, dim in axis.operands.items()]
            extents += [outputs[k].shape[dim] for k, dim in axis.results.items() if isinstance(dim, int)]
            yield from (Relation(first, other) for first in extents[:1] for other in extents[1:])


def _broadcast(call: Call, store: SizeRelations) -> Iterator[Relation]:
    """Extents that lie under each other are equal, unless one of them is 1 or may be."""
    if not call.outputs():
        return
    made = call.output().shape
    for value in call.inputs():
        if value.is_host_scalar or len(value.shape) > len(made):
            continue
        for extent, below in zip(reversed(made), reversed(value.shape), strict=False):
            if store.is_less(_ONE, below):
                yield Relation(below, extent)


def _simplest(relation: Relation) -> Relation:
    """With a dim alone on the left where one follows, as in `S0 == 12*S1`."""
    zero = without_common_factor(relation.left - relation.right)
    for name in sorted(zero.dims()):
        dim = SizeExpr.dim(name)
        for image in (dim - zero, dim + zero):
            if name not in image.dims() and all(coefficient > 0 for _, coefficient in image.terms()):
                return Relation(dim, image)
    return relation

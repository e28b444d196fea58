"""What is wrong with the dims and relations of a graph, and with the sizes that use them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from neaptide.errors import SymbolicError
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import part_dim
from neaptide.ir.nodes import Arg, Loop, Node
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.size_expr import SizeExpr


def faults_of_declarations(graph: Graph) -> Iterator[str]:
    """What is wrong with the dims and relations themselves, as sentences. O(dims + relations)."""
    names: set[str] = set()
    for dim in graph.dims:
        yield from _faults_of_dim(dim)
        if dim.name in names:
            yield f"dim {dim.name} is declared twice"
        names.add(dim.name)
    for relation in graph.relations:
        yield from _faults_of_relation(relation, names)


def faults_of_sizes(
    graph: Graph, nodes: Container[int] | None = None, values: Container[int] | None = None
) -> Iterator[str]:
    """Sizes that use a dim that nobody declares, as sentences. O(size).

    A graph that declares no dim leaves all its dims open: each may be 0 or more. The body of a loop uses the dims of
    the graph around it and those that follow from the lengths of its parts.
    """
    if graph.dims:
        yield from _unknown(graph, frozenset(dim.name for dim in graph.dims), nodes, values)


def _faults_of_dim(dim: Dim) -> Iterator[str]:
    try:
        SizeExpr.dim(dim.name)
    except SymbolicError as error:
        yield error.what
    if dim.low < 0:
        yield f"dim {dim.name} may be {dim.low}, but no size is negative"
    if dim.high is not None and dim.high < dim.low:
        yield f"dim {dim.name} has the empty range {dim.low}..{dim.high}"


def _faults_of_relation(relation: Relation, names: set[str]) -> Iterator[str]:
    if unknown := sorted(relation.dims() - names):
        yield f"relation {relation} uses dim {unknown[0]}, which is not declared"
    difference = relation.left - relation.right
    if difference.is_constant:
        yield f"relation {relation} {'says nothing' if difference.constant_value() == 0 else 'never holds'}"


def _unknown(
    graph: Graph, known: frozenset[str], nodes: Container[int] | None, values: Container[int] | None
) -> Iterator[str]:
    for value in graph.values:
        if values is None or value.id in values:
            sizes = [*value.shape, *value.strides, value.offset]
            if value.storage is not None and value.storage < len(graph.storages):
                sizes.append(graph.storages[value.storage].nbytes)
            yield from _undeclared(f"value %{value.name}", sizes, known)
    for node in graph.nodes:
        if nodes is None or node.id in nodes:
            arguments = (*node.args, *(arg for _, arg in node.kwargs))
            yield from _undeclared(f"node {node.id} ({node.op})", _sizes(arguments), known)
            for loop in node.regions:
                yield from _unknown_in_loop(node, loop, known)


def _unknown_in_loop(node: Node, loop: Loop, known: frozenset[str]) -> Iterator[str]:
    sizes = [loop.trip_count, *(part.step for part in loop.slices)]
    yield from _undeclared(f"the loop at node {node.id}", sizes, known)
    if loop.body.dims or loop.body.relations:
        yield f"the body of the loop at node {node.id} declares dims; it uses those of the graph around it"
    extents = (loop.body.values[loop.body.inputs[part.input]].shape[part.axis] for part in loop.slices)
    told = (part_dim(extent, known) for extent in extents)
    within = known | {found.dim for found in told if found is not None}
    yield from _unknown(loop.body, within, None, None)


def _sizes(arguments: Iterable[Arg]) -> Iterator[SizeExpr]:
    for arg in arguments:
        if isinstance(arg, SizeExpr):
            yield arg
        elif isinstance(arg, tuple):
            yield from _sizes(arg)


def _undeclared(what: str, sizes: Iterable[SizeExpr], known: frozenset[str]) -> Iterator[str]:
    for size in sizes:
        if not size.is_constant and (unknown := sorted(size.dims() - known)):
            yield f"{what} has the size {size}, but dim {unknown[0]} is not declared"

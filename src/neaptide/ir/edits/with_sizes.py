"""A graph whose symbolic dims have values: what is asked of numbers can be asked of it."""

from __future__ import annotations

from dataclasses import replace

from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import Binding, part_dim
from neaptide.ir.nodes import Arg, Loop
from neaptide.symbolic.dims import bound_dims, bound_relations
from neaptide.symbolic.size_expr import SizeExpr


def with_sizes(graph: Graph, binding: Binding) -> Graph:
    """The graph with numbers in place of some dims; values, storages and nodes keep their ids. O(size).

    In the body of a loop these are the dims of the graph around it; those that follow from the length of a part stay.
    Dims that have a number are no longer declared, and relations lose what is settled.

    Raises:
        SymbolicError: a value is outside the range of its dim, or breaks a relation.
    """
    if not binding:
        return graph
    made = _sized(graph, binding)
    return replace(
        made, dims=bound_dims(graph.dims, binding), relations=bound_relations(graph.relations, binding)
    )


def _sized(graph: Graph, binding: Binding) -> Graph:
    def sizes(found: tuple[SizeExpr, ...]) -> tuple[SizeExpr, ...]:
        return tuple(size.substitute(binding) for size in found)

    def argument(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(argument(item) for item in arg)
        if not isinstance(arg, SizeExpr):
            return arg
        size = arg.substitute(binding)
        return size.constant_value() if size.is_constant else size

    return replace(
        graph,
        nodes=tuple(
            replace(
                node,
                args=tuple(argument(arg) for arg in node.args),
                kwargs=tuple((key, argument(arg)) for key, arg in node.kwargs),
                regions=tuple(_sized_loop(loop, binding) for loop in node.regions),
            )
            for node in graph.nodes
        ),
        values=tuple(
            replace(
                value,
                shape=sizes(value.shape),
                strides=sizes(value.strides),
                offset=value.offset.substitute(binding),
            )
            for value in graph.values
        ),
        storages=tuple(
            replace(storage, nbytes=storage.nbytes.substitute(binding)) for storage in graph.storages
        ),
    )


def _sized_loop(loop: Loop, binding: Binding) -> Loop:
    body, known = loop.body, frozenset(binding)
    extents = (body.values[body.inputs[part.input]].shape[part.axis] for part in loop.slices)
    told = {found.dim for extent in extents if (found := part_dim(extent, known)) is not None}
    return replace(
        loop,
        body=_sized(body, {dim: size for dim, size in binding.items() if dim not in told}),
        trip_count=loop.trip_count.substitute(binding),
        slices=tuple(replace(part, step=part.step.substitute(binding)) for part in loop.slices),
    )

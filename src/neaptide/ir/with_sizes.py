"""A graph whose symbolic dims have values: what is asked of numbers can be asked of it."""

from __future__ import annotations

from dataclasses import replace

from neaptide.ir.graph import Graph
from neaptide.ir.loop_maps import Binding
from neaptide.ir.nodes import Arg
from neaptide.symbolic.dims import bound_dims, bound_relations
from neaptide.symbolic.size_expr import SizeExpr


def with_sizes(graph: Graph, binding: Binding) -> Graph:
    """The graph with numbers in place of some dims; values, storages and nodes keep their ids. O(size).

    Bodies of loops stay as they are. Dims that have a number are no longer declared, and relations lose what is settled.

    Args:
        graph: with symbolic dims, or without.
        binding: values of dims.

    Raises:
        SymbolicError: a value is outside the range of its dim, or breaks a relation.
    """
    if not binding:
        return graph

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
        dims=bound_dims(graph.dims, binding),
        relations=bound_relations(graph.relations, binding),
    )

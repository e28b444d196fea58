"""Recorded graphs with symbolic sizes: lengths that are primes of their own become dims, wherever they are factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Arg
from neaptide.ir.verify import verify
from neaptide.symbolic.size_expr import SizeExpr


def symbolised(graph: Graph, dims: Mapping[int, str]) -> Graph:
    """The graph with a dim in place of each of some primes; no other number of it may have one of them as a factor."""

    def size(number: int) -> SizeExpr:
        result = SizeExpr.const(1)
        for prime, name in dims.items():
            while number and number % prime == 0:
                number //= prime
                result = result * SizeExpr.dim(name)
        return result * number

    def sizes(found: tuple[SizeExpr, ...]) -> tuple[SizeExpr, ...]:
        return tuple(size(n.constant_value()) for n in found)

    def argument(arg: Arg) -> Arg:
        if isinstance(arg, tuple):
            return tuple(map(argument, arg))
        if isinstance(arg, bool) or not isinstance(arg, (int, SizeExpr)):
            return arg
        found = size(arg if isinstance(arg, int) else arg.constant_value())
        return arg if found.is_constant else found

    made = replace(
        graph,
        nodes=tuple(
            replace(
                node,
                args=tuple(map(argument, node.args)),
                kwargs=tuple((key, argument(arg)) for key, arg in node.kwargs),
            )
            for node in graph.nodes
        ),
        values=tuple(
            replace(
                value,
                shape=sizes(value.shape),
                strides=sizes(value.strides),
                offset=size(value.offset.constant_value()),
            )
            for value in graph.values
        ),
        storages=tuple(
            replace(storage, nbytes=size(storage.nbytes.constant_value())) for storage in graph.storages
        ),
    )
    verify(made)
    return made

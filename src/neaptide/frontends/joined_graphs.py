"""Whether two programs of one step, traced at different sizes, are one: same operations, same sizes as expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from neaptide.frontends.captured import CapturedProgram
from neaptide.frontends.contents import exact
from neaptide.frontends.scalars import is_scalar
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.values import Value
from neaptide.ir.with_sizes import with_sizes
from neaptide.symbolic.size_expr import SizeExpr

_ONE = SizeExpr.const(1)


def first_difference(
    program: CapturedProgram, other: CapturedProgram, binding: Mapping[str, int]
) -> str | None:
    """Where a program that is given some sizes is another one first, in words; None where it is the same. O(size).

    Strides of axes that have one element are not compared: no element is reached through them.

    Args:
        program: with symbolic dims.
        other: of the same step, with fewer dims or the same.
        binding: values of the dims that `other` does not have.
    """
    if program.decisions is not None or other.decisions is not None:
        return "its branches are taken by step counts"
    one = with_sizes(replace(program.graph, dims=(), relations=()), binding)
    two = other.graph
    for node, also in zip_longest(one.nodes, two.nodes):
        if node is None or also is None or _row(one, node) != _row(two, also):
            return _told(node, also)
    for what, mine, its in zip(_PARTS, _parts(program, one), _parts(other, two), strict=True):
        if mine != its:
            return f"{what} differ"
    return None


_PARTS = ("inputs", "storages", "segments", "results", "gradients and state", "notes of the trace")


def _parts(program: CapturedProgram, graph: Graph) -> Iterator[Any]:
    """What is compared of a program besides its operations, in the order of `_PARTS`."""
    yield program.inputs, [_geometry(graph.values[value]) for value in graph.inputs]
    yield [(s.nbytes, s.device, s.kind) for s in graph.storages]
    yield graph.segments
    constants = {at: _fact(item) for at, item in program.constants.items()}
    yield graph.outputs, program.outputs, program.result_spec, constants, program.borrowed, program.attached
    written = {slot: _fact(item) for slot, item in program.written.items()}
    patterns = [(p.gradients, p.optimizer_state) for p in (program.entry, program.exit)]
    yield patterns, program.kept_gradients, program.ignores_gradients, written
    yield program.observations, program.unknown_ops, program.checkpoints


def _row(graph: Graph, node: Node) -> tuple[Any, ...]:
    """An operation with all that decides what it does; `1`, `1.0` and `True` are three arguments."""
    made = [_geometry(graph.values[value]) for value in node.outputs]
    given = _fact(node.args), _fact(node.kwargs), _fact(node.results)
    return node.op, node.inputs, node.outputs, given, node.effects, node.regions, made


def _geometry(value: Value) -> tuple[Any, ...]:
    strides = [stride for size, stride in zip(value.shape, value.strides, strict=True) if size != _ONE]
    return value.dtype, value.shape, strides, value.offset, value.storage, value.version


def _fact(item: Any) -> Any:
    """Something of a program so that equal means the same: plain values with their type, what is no value by identity."""
    if isinstance(item, tuple):
        return tuple(map(_fact, item))
    if is_scalar(item):
        return type(item), exact(item)
    return item


def _told(node: Node | None, other: Node | None) -> str:
    """The operation that differs, with its line."""
    found = node or other
    assert found is not None
    at = f" at {found.source.location}" if found.source.location else ""
    if node is None or other is None or node.op == other.op:
        return f"{found.op} differs{at}"
    return f"{other.op} stands in place of {node.op}{at}"

"""Which operand's bytes a result could be written into, as far as operation and layout of the tensors decide.

Whether the operand is still needed is a matter of the schedule: `schedule.order` and `layout.in_place.choices` both start from
the answers given here, so that they share one choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr


class NotInPlace(StrEnum):
    """Why a result cannot live in the bytes of an operand."""

    UNKNOWN_OP = "the op table has no row for the operation"
    IMPURE = "the operation has effects: it overwrites something, draws random numbers or talks to others"
    SEVERAL_RESULTS = "the operation has several results"
    KERNEL = "the kernel reads elements again after writing others, or cannot write where it is told"
    OPERAND = "the kernel may not write on top of this operand"
    SHAPE_ONLY = "only the operand's shape is used, its bytes may be gone"
    RESULT_LAYOUT = "the result does not fill its bytes"
    BROADCAST = "the result grows by broadcasting: it has another shape than the operand"
    DTYPE = "result and operand differ in dtype"
    STRIDES = "result and operand differ in strides or offset"
    BYTES = "the operand is a part of a larger block"
    DEVICE = "result and operand live on different devices"
    OVERLAP = "another operand sees the same bytes in another layout"
    CALLER_OWNED = "the caller owns the operand and has not donated it"
    OPERAND_HANDED_BACK = "the operand is handed back"
    RESULT_HANDED_BACK = "the result is handed back, so it gets bytes of its own"
    NEEDED_BY_BACKWARD = "the backward needs the operand"
    NEEDED_LATER = "the operand is needed later"
    RIVAL = "the result takes the bytes of another operand"


@dataclass(frozen=True, slots=True)
class Fit:
    """A result and an operand with the same bytes and layout, by value ids; `reason` says what forbids it, if anything."""

    output: int
    operand: int
    reason: NotInPlace | None = None


def in_place_fits(
    graph: Graph, node: Node, registry: OpRegistry, storage_bytes: Sequence[int | SizeExpr]
) -> tuple[Fit, ...]:
    """Every operand of a node that makes bytes, with its fitness to hold the result. O(operands^2).

    One row for each result and each storage among the operands, through the first operand that sees it; none for
    views and results that are in place already. `reason` is None where operation, layout and sizes permit it.

    Args:
        graph: the program.
        node: one of its nodes.
        registry: what its operation means.
        storage_bytes: sizes by storage id, as numbers or as expressions.
    """
    made = graph.created_storages(node)
    results = [v for v in node.outputs if graph.values[v].storage in made]
    operands = _first_by_storage(graph, node)
    spec = registry.find(node.op)
    why = _node_reason(node, spec)
    found = []
    for result in results:
        for operand in operands:
            reason = why or _pair_reason(graph, node, spec, result, operand, storage_bytes)
            found.append(Fit(result, operand, reason))
    return tuple(found)


def _first_by_storage(graph: Graph, node: Node) -> tuple[int, ...]:
    seen: dict[int, int] = {}
    for value in node.inputs:
        storage = graph.values[value].storage
        if storage is not None:
            seen.setdefault(storage, value)
    return tuple(seen.values())


def _node_reason(node: Node, spec: OpSpec | None) -> NotInPlace | None:
    if spec is None:
        return NotInPlace.UNKNOWN_OP
    if not spec.in_place:
        return NotInPlace.KERNEL
    if not node.effects.is_pure:
        return NotInPlace.IMPURE
    return NotInPlace.SEVERAL_RESULTS if len(node.outputs) != 1 else None


def _pair_reason(
    graph: Graph, node: Node, spec: OpSpec | None, result: int, operand: int, sizes: Sequence[int | SizeExpr]
) -> NotInPlace | None:
    made, over = graph.values[result], graph.values[operand]
    assert spec is not None
    assert made.storage is not None
    assert over.storage is not None
    if operand not in needed_inputs(graph, node):
        return NotInPlace.SHAPE_ONLY
    if not any(_is_argument(node, position, operand) for position in spec.in_place):
        return NotInPlace.OPERAND
    if made.dtype != over.dtype:
        return NotInPlace.DTYPE
    if made.shape != over.shape:
        return NotInPlace.BROADCAST
    if not _same_layout(made, over):
        return NotInPlace.STRIDES
    if graph.storages[made.storage].device != graph.storages[over.storage].device:
        return NotInPlace.DEVICE
    if made.nbytes != graph.storages[made.storage].nbytes:
        return NotInPlace.RESULT_LAYOUT
    if sizes[made.storage] != sizes[over.storage]:
        return NotInPlace.BYTES
    for other in node.inputs:
        value = graph.values[other]
        if value.storage == over.storage and not _same_place(value, over):
            return NotInPlace.OVERLAP
    return None


def _is_argument(node: Node, position: int, value: int) -> bool:
    arg = node.args[position] if position < len(node.args) else None
    return isinstance(arg, Ref) and node.inputs[arg.slot] == value


def _same_layout(one: Value, other: Value) -> bool:
    return one.strides == other.strides and one.offset == other.offset


def _same_place(one: Value, other: Value) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and _same_layout(one, other)

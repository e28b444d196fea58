"""Which operand's bytes a result could be written into, as far as operation and layout of the tensors decide.

Whether the operand is still needed is a matter of the schedule: orders, plans and arenas all start from the answers given here.
"""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, operand_values
from neaptide.ir.registry import OpRegistry, Trait
from neaptide.ir.values import Value
from neaptide.symbolic.size_expr import SizeExpr


def in_place_operands(
    graph: Graph, node: Node, registry: OpRegistry, storage_bytes: Sequence[int | SizeExpr]
) -> tuple[int, ...]:
    """Operands, by value id, that may hold the only result of a node: the first on each storage. O(operands^2).

    The node has no effects, its kernel may overwrite the operand, and both fill the same bytes in the same layout.
    """
    spec = registry.find(node.op)
    if spec is None or not spec.in_place or not node.effects.is_pure or len(node.outputs) != 1:
        return ()
    made = graph.values[node.outputs[0]]
    if made.storage not in graph.created_storages(node) or made.nbytes != graph.storages[made.storage].nbytes:
        return ()
    called_with = operand_values(node)
    may_overwrite = {value for position, value in enumerate(called_with) if position in spec.in_place}
    if not spec.is_a(Trait.ELEMENTWISE):  # elements are written before others of the operand are read
        may_overwrite.difference_update(
            value for position, value in enumerate(called_with) if position not in spec.in_place
        )
    needed = needed_inputs(graph, node)
    first: dict[int, int] = {}
    for value in node.inputs:
        if (storage := graph.values[value].storage) is not None:
            first.setdefault(storage, value)
    return tuple(
        operand
        for storage, operand in first.items()
        if operand in may_overwrite
        and operand in needed
        and _tensor(graph.values[operand]) == _tensor(made)
        and graph.storages[storage].device == graph.storages[made.storage].device
        and storage_bytes[storage] == storage_bytes[made.storage]
        # Another operand could see the same bytes in another layout.
        and all(
            _tensor(value) == _tensor(made)
            for value in map(graph.values.__getitem__, node.inputs)
            if value.storage == storage
        )
    )


def _tensor(value: Value) -> tuple[object, ...]:
    """What tells where the elements of a tensor lie in its storage, and what they are."""
    return value.dtype, value.shape, value.strides, value.offset

"""The ordering problem of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from neaptide.analysis.in_place import in_place_operands
from neaptide.analysis.profile_bytes import loop_workspaces
from neaptide.analysis.sizes import evaluate_storage_bytes, main_device, on_device
from neaptide.ir.dependencies import needed_inputs, predecessors
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node
from neaptide.ir.registry import OpRegistry
from neaptide.schedule.order.problem import OrderOp, OrderProblem, OrderStorage


def order_problem(
    graph: Graph,
    *,
    workspace: Mapping[int, int] | None = None,
    storage_bytes: Mapping[int, int] | None = None,
    binding: Mapping[str, int] | None = None,
    device: str | None = None,
    on_operands: OpRegistry | None = None,
    freed: Collection[int] = (),
) -> OrderProblem:
    """What there is to order in a graph; op k is node k, so an order is a sequence of node ids.

    A view is an op that makes nothing and touches the storage it shows, so it costs nothing and keeps that storage
    alive. An operand of which only the shape is used is not touched. Peaks equal those of
    `analysis.profile_bytes.memory_profile`, workspace included; a loop without one is charged with its body's transient
    peak. Where a view and a mutation of its storage are not ordered by the graph, they keep program order here; a view is
    free, so no lower peak is lost.

    Args:
        on_operands: rows that say which results may take the bytes of an operand at its last use; None for none.
        freed: storages of the caller that die after their last use.
    """
    sizes = evaluate_storage_bytes(graph, binding, storage_bytes)
    where = device if device is not None else main_device(graph, sizes)
    scratch = on_device(graph, where, {**loop_workspaces(graph, binding), **(workspace or {})})
    owned = set(graph.input_storages())
    handed_back = set(graph.output_storages())
    names = Counter(storage.name for storage in graph.storages)
    storages = tuple(
        OrderStorage(
            storage.name
            if storage.name and names[storage.name] == 1
            else f"{storage.name or 'storage'}#{storage.id}",
            sizes[storage.id] if storage.device == where else 0,
            resident=storage.id in owned and storage.id not in freed,
            output=storage.id in handed_back,
        )
        for storage in graph.storages
    )
    before = predecessors(graph)
    ops = tuple(
        OrderOp(
            f"{node.op}#{node.id}",
            *_accesses(graph, node),
            scratch[node.id],
            () if on_operands is None else _in_place(graph, node, on_operands, sizes),
            after=before[node.id],
        )
        for node in graph.nodes
    )
    return OrderProblem(storages, ops, graph.name)


def _in_place(
    graph: Graph, node: Node, registry: OpRegistry, sizes: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Pairs of the storage that a node makes and one whose bytes it may take."""
    operands = in_place_operands(graph, node, registry, sizes)
    taken = (graph.values[operand].storage for operand in operands)
    made = graph.values[node.outputs[0]].storage if operands else None
    return () if made is None else tuple((made, read) for read in taken if read is not None)


def _accesses(graph: Graph, node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Storages that must be there when a node runs without being written, and those that it makes or overwrites."""
    writes = dict.fromkeys((*graph.created_storages(node), *(a.storage for a in node.effects.writes)))
    made = set(graph.created_storages(node))
    needed = [graph.values[value].storage for value in (*needed_inputs(graph, node), *node.outputs)]
    touched = dict.fromkeys(s for s in (*needed, *(a.storage for a in node.effects.reads)) if s is not None)
    # What is overwritten was there before, so it is read as well: nothing else says that it existed.
    return tuple(sorted(s for s in touched if s not in made)), tuple(sorted(writes))

"""The ordering problem of a model that is run, not trained: its footprint."""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.analysis.folded import folded_storages
from neaptide.ir.graph import Graph
from neaptide.ir.registry import Call, OpRegistry
from neaptide.ir.values import Kind
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.problem import OrderProblem


def model_problem(
    graph: Graph,
    registry: OpRegistry,
    *,
    workspace: Mapping[int, int] | None = None,
    binding: Mapping[str, int] | None = None,
) -> OrderProblem:
    """What there is to order in a model; op k is node k. Its peaks are footprints in bytes. O(size of the graph).

    Activations and the model's inputs count. Weights, and what depends on nothing else, lie elsewhere and do
    not; nor do buffers, which the caller keeps between runs. An input dies after its last use, and a result may take the bytes of an operand at its last use where the row of the
    operation says so. Nodes have the scratch bytes of their rows, but for those in `workspace`.
    """
    inputs = {graph.values[value].storage for value in graph.inputs}
    freed = {s for s in inputs if s is not None and graph.storages[s].kind is Kind.INPUT}
    kept = {storage.id: 0 for storage in graph.storages if storage.kind is Kind.BUFFER}
    return order_problem(
        graph,
        workspace={**row_workspace(graph, registry, binding), **(workspace or {})},
        storage_bytes={**folded_storages(graph), **kept},
        binding=binding,
        on_operands=registry,
        freed=freed,
    )


def row_workspace(
    graph: Graph, registry: OpRegistry, binding: Mapping[str, int] | None = None
) -> dict[int, int]:
    """Scratch bytes that the rows of operations state, by node; those with none are left out."""
    found = {}
    for node in graph.nodes:
        spec = registry.find(node.op)
        if spec is not None and (nbytes := spec.workspace(Call(graph, node)).evaluate(binding)):
            found[node.id] = nbytes
    return found

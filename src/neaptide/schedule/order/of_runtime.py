"""The ordering problem of a model that ONNX Runtime runs: what the runtime allocates, by what was measured of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neaptide.analysis.folded import folded_storages, folded_values
from neaptide.cost.onnxruntime.scratch import KernelMemory, KernelScratch
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.values import Kind
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.problem import OrderProblem

_Pairs = tuple[tuple[int, int], ...]


def runtime_problem(
    graph: Graph, scratch: KernelScratch, binding: Mapping[str, int] | None = None
) -> OrderProblem:
    """What there is to order in a model for ONNX Runtime; op k is node k. O(size of the graph).

    Its peaks are bytes that the runtime allocates in a run with optimizers, memory pattern, reuse of buffers and arena
    off. The caller holds the inputs through the whole run, and weights are there before: neither counts. A result takes
    the bytes of an operand where the kernel was seen to do so; it never does if it is an output of the model. A view
    that is an output is a copy. What the runtime keeps of results on the bytes of others counts from the start of the run.
    """
    sizes = folded_storages(graph)
    sizes.update((storage.id, 0) for storage in graph.storages if storage.kind is Kind.INPUT)
    kept = {*graph.input_storages(), *graph.output_storages()}
    pairs = {
        node.id: _pairs(graph, node, scratch.kernels[node.id], kept)
        for node in graph.nodes
        if node.id in scratch.kernels
    }
    shared = round(scratch.shared_bytes * (sum(bool(some) for some in pairs.values()) + _views(graph)))
    workspace = {node: nbytes + shared for node, nbytes in scratch.workspace.items()}
    for node in graph.nodes:
        copied = _copied_bytes(graph, node, binding)
        if copied:
            workspace[node.id] = workspace.get(node.id, 0) + copied
    problem = order_problem(graph, workspace=workspace, storage_bytes=sizes, binding=binding)
    ops = tuple(
        replace(op, in_place=pairs.get(node.id, op.in_place))
        for op, node in zip(problem.ops, graph.nodes, strict=True)
    )
    return replace(problem, ops=ops)


def _pairs(graph: Graph, node: Node, kernel: KernelMemory, kept: set[int]) -> _Pairs:
    """Storages that a node makes, each with one whose bytes it takes if that dies."""
    made = graph.values[node.outputs[0]].storage if node.outputs else None
    if made is None or made in kept:
        return ()
    found = []
    for place in kernel.in_place:
        arg = node.args[place]
        read = graph.values[node.inputs[arg.slot]].storage if isinstance(arg, Ref) else None
        if read is not None and read != made and read not in kept:
            found.append((made, read))
    return tuple(dict.fromkeys(found))


def _views(graph: Graph) -> int:
    """How many nodes make a view of what is no weight, and no output of the model."""
    others = {*folded_values(graph), *graph.outputs}
    return sum(
        any(value not in others for value in node.outputs) and not graph.created_storages(node)
        for node in graph.nodes
    )


def _copied_bytes(graph: Graph, node: Node, binding: Mapping[str, int] | None) -> int:
    """Bytes of an output of the model that is a view in the graph, which the runtime copies."""
    made = graph.created_storages(node)
    return sum(
        graph.values[value].nbytes.evaluate(binding)
        for value in node.outputs
        if value in graph.outputs and graph.values[value].storage not in made
    )

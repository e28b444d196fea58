"""The ordering problem of a model that ONNX Runtime runs: what the runtime allocates, by what was measured of its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neaptide.analysis.folded import folded_storages
from neaptide.cost.onnxruntime.scratch import KernelMemory, KernelScratch
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, Ref
from neaptide.ir.values import Kind
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.problem import OrderOp, OrderProblem

_Pairs = tuple[tuple[int, int], ...]


def runtime_problem(
    graph: Graph, scratch: KernelScratch, binding: Mapping[str, int] | None = None
) -> OrderProblem:
    """What there is to order in a model for ONNX Runtime; op k is node k. O(size of the graph).

    Its peaks are bytes that the runtime allocates in a run with optimizers, memory pattern, reuse of buffers and arena
    off. The caller holds the inputs through the whole run, and weights are there before: neither counts. A result takes
    the bytes of an operand where the kernel was seen to do so; it never does if it is an output of the model. A view
    that is an output is a copy.
    """
    sizes = folded_storages(graph)
    sizes.update((storage.id, 0) for storage in graph.storages if storage.kind is Kind.INPUT)
    workspace = dict(scratch.workspace)
    for node in graph.nodes:
        copied = _copied_bytes(graph, node, binding)
        if copied:
            workspace[node.id] = workspace.get(node.id, 0) + copied
    problem = order_problem(graph, workspace=workspace, storage_bytes=sizes, binding=binding)
    kept = {*graph.input_storages(), *graph.output_storages()}

    def overwriting(op: OrderOp, node: Node) -> OrderOp:
        kernel = scratch.kernels.get(node.id)
        return op if kernel is None else replace(op, in_place=_pairs(graph, node, kernel, kept))

    return replace(problem, ops=tuple(map(overwriting, problem.ops, graph.nodes)))


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


def _copied_bytes(graph: Graph, node: Node, binding: Mapping[str, int] | None) -> int:
    """Bytes of an output of the model that is a view in the graph, which the runtime copies."""
    made = graph.created_storages(node)
    return sum(
        graph.values[value].nbytes.evaluate(binding)
        for value in node.outputs
        if value in graph.outputs and graph.values[value].storage not in made
    )

"""A planned model of ONNX as a C program: its weights are numbers of the file, or are worked out from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from neaptide.analysis.folded import is_folded
from neaptide.errors import UsageError
from neaptide.frontends.onnx.constants.folding import FoldedWeights
from neaptide.frontends.onnx.model import OnnxModel
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, operand_values
from neaptide.lower.c.operators.node_call import Numbers
from neaptide.lower.c.program import result_values
from neaptide.lower.c.write import CProgram, CSettings, write_program
from neaptide.lower.onnx.opset_forms import at_opset, listed_numbers
from neaptide.lower.onnx.protos import NodeWriter

if TYPE_CHECKING:
    from onnx import NodeProto


def write_c(
    model: OnnxModel,
    name: str,
    settings: CSettings | None = None,
    *,
    graph: Graph | None = None,
    order: Sequence[int] | None = None,
    updates: Mapping[str, str] | None = None,
) -> CProgram:
    """The C file and the header of a model.

    Args:
        graph: what passes have made of the graph of the model; its own graph by default.
        order: node ids in the order in which they are to run; that of the graph by default.
        updates: by name of an output in the file, the weight whose place it takes: a training step. These weights are
            variable arrays, and so is nothing else.

    Raises:
        UsageError: an update that names no output, or no weight of its shape.
        LoweringError: an operator, element type or setting that has no kernel, or a dim without a size.
        InfeasibleBudget: the memories are too small.
        CaptureError: a weight cannot be worked out.
    """
    graph = model.graph if graph is None else graph
    order = range(len(graph.nodes)) if order is None else order
    replaced = _updates(model, graph, updates or {})
    weights, running = _weights(model, graph, order, frozenset(replaced.values()))
    titles = dict(zip(graph.outputs, map(model.file_name, model.graph.outputs), strict=True))
    for value in graph.inputs:
        titles[value] = model.names.get(graph.values[value].name, graph.values[value].name)
    return write_program(graph, running, weights, name, settings, updates=replaced, titles=titles)


def _updates(model: OnnxModel, graph: Graph, updates: Mapping[str, str]) -> dict[int, int]:
    """By value that is made, the value of the weight that it replaces."""
    outputs = dict(zip(map(model.file_name, model.graph.outputs), graph.outputs, strict=True))
    weights = {
        model.names.get(name, name): value
        for value in graph.inputs
        if (name := graph.values[value].name) in model.weights
    }
    for made, weight in updates.items():
        if made not in outputs or weight not in weights:
            raise UsageError(
                f"{made!r} cannot replace {weight!r}",
                why=f"the model has no output {made!r}"
                if made not in outputs
                else f"it has no weight {weight!r}",
            )
        if graph.values[outputs[made]].shape != graph.values[weights[weight]].shape:
            raise UsageError(f"{made!r} cannot replace {weight!r}", why="they have different shapes")
    return {outputs[made]: weights[weight] for made, weight in updates.items()}


def _weights(
    model: OnnxModel, graph: Graph, order: Sequence[int], variable: frozenset[int]
) -> tuple[dict[int, Numbers], list[int]]:
    """Numbers of the weights that the program needs, and the nodes that it runs: all that do not make such numbers."""
    known = {v for v in graph.inputs if graph.values[v].name in model.weights} - variable
    makers: list[Node] = []
    running: list[int] = []
    lists: dict[int, Numbers] = {}
    opset = model.opsets.get("", 1)
    for number in order:
        node = graph.nodes[number]
        if (listed := listed_numbers(node)) is not None:
            lists[node.outputs[0]] = listed
            known.update(node.outputs)
        elif is_folded(node, known):
            known.update(node.outputs)
            makers.append(at_opset(graph, node, opset))
        else:
            running.append(number)
    used = {value for number in running for value in graph.nodes[number].inputs}
    protos = _protos(NodeWriter(model.opsets, model.kept), graph, makers)

    def numbers(name: str) -> Numbers:
        value = int(name[1:])
        return lists[value] if value in lists else model.weights[graph.values[value].name].array()

    folded = FoldedWeights(numbers, protos, model.opsets)
    wanted = (known & used.union(graph.outputs)) | variable
    return {value: folded.array(f"v{value}") for value in sorted(wanted)}, running


def _protos(writer: NodeWriter, graph: Graph, nodes: Sequence[Node]) -> list[NodeProto]:
    """Nodes as those of a file in which value k is called `vk`."""
    return [
        writer.write(
            node,
            ["" if value is None else f"v{value}" for value in operand_values(node)],
            ["" if value is None else f"v{value}" for value in result_values(node)],
            dtype=graph.values[node.outputs[0]].dtype,
        )
        for node in nodes
    ]

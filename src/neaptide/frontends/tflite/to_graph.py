"""A `.tflite` model to a graph: one node for each operator of its first subgraph, in the file's order."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from neaptide.frontends.tflite.body_bytes import body_bytes
from neaptide.frontends.tflite.model import Subgraph, TfliteModel, TfliteOperator
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Effects, Node, Ref
from neaptide.ir.registry import Call, OpRegistry, OpSpec
from neaptide.ir.values import Kind, contiguous_strides
from neaptide.ops.tflite import ALIGNMENT, VIEWS, tflite_registry, tflite_row
from neaptide.schedule.order.from_graph import order_problem
from neaptide.schedule.order.problem import OrderProblem
from neaptide.symbolic.size_expr import SizeExpr

_STREAM = "tflite"  # of random numbers
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class TfliteGraph:
    """A model as a graph. Node k is operator k of the first subgraph.

    Attributes:
        storage_of: by tensor, its storage; None of a tensor that no operator, input or output names.
        storage_bytes: bytes of storages where they are not what the graph says: none for weights and variables, which
            lie elsewhere, and sizes rounded up as the interpreter rounds them.
        workspace: scratch bytes by node, of the reference kernels, and of the subgraphs that it runs.
        scratch: by subgraph, those of the kernels alone, by operator.
        on_operands: rows that say which results may take the bytes of an operand; None where none may.
    """

    model: TfliteModel
    graph: Graph
    storage_of: tuple[int | None, ...]
    storage_bytes: dict[int, int]
    workspace: dict[int, int]
    scratch: tuple[dict[int, int], ...]
    on_operands: OpRegistry | None = None

    def problem(self) -> OrderProblem:
        """What there is to order. An input of the model may be overwritten after its last use; outputs stay to the end."""
        return order_problem(
            self.graph,
            workspace=self.workspace,
            storage_bytes=self.storage_bytes,
            on_operands=self.on_operands,
            freed=[storage.id for storage in self.graph.storages if storage.kind is Kind.INPUT],
        )


def tflite_graph(model: TfliteModel, *, on_operands: bool = False) -> TfliteGraph:
    """The graph of a model. O(size).

    Weights are parameters and variables are buffers, both of the caller. A reshape, squeeze or expansion shows the bytes of its
    operand; one of a weight or a variable copies, as the interpreter does. An operator that is given a variable overwrites it.

    Args:
        on_operands: element-wise results may take the bytes of an operand at its last use, as the reference kernels allow.
    """
    makings = [_Making(model, subgraph) for subgraph in model.subgraphs]
    graphs = [making.run() for making in makings]
    scratch = tuple(making.scratch for making in makings)
    workspace = dict(scratch[0])
    for number, operator in enumerate(model.main.operators):
        inside = max((body_bytes(model, called, scratch) for called in operator.called), default=0)
        if inside:
            workspace[number] = workspace.get(number, 0) + inside
    storage_of = makings[0].storage_of(graphs[0])
    made = TfliteGraph(model, graphs[0], storage_of, _sizes(graphs[0]), workspace, scratch)
    return (
        replace(made, on_operands=tflite_registry(node.op for node in made.graph.nodes))
        if on_operands
        else made
    )


class _Making:
    """The graph of a subgraph; `scratch` are the bytes of its kernels, by operator."""

    def __init__(self, model: TfliteModel, subgraph: Subgraph) -> None:
        self.subgraph = subgraph
        self.builder = GraphBuilder(_NOT_IN_NAMES.sub("_", model.name))
        self.value: list[int | None] = [None] * len(self.subgraph.tensors)
        self.scratch: dict[int, int] = {}

    def run(self) -> Graph:
        main = self.subgraph
        used = set(main.outputs) | {t for operator in main.operators for t in operator.operands}
        for tensor in dict.fromkeys((*main.inputs, *sorted(used))):
            made = main.tensors[tensor]
            if made.is_constant or made.is_variable or tensor in main.inputs or not made.nbytes:
                self.owned(tensor)
        for operator in main.operators:
            self.node(operator)
        self.builder.output(*dict.fromkeys(self.number(tensor) for tensor in main.outputs))
        for tensor in main.outputs:
            self.mark_output(tensor)
        return self.builder.finish()

    def storage_of(self, graph: Graph) -> tuple[int | None, ...]:
        return tuple(None if value is None else graph.values[value].storage for value in self.value)

    def number(self, tensor: int) -> int:
        found = self.value[tensor]
        assert found is not None
        return found

    def owned(self, tensor: int) -> None:
        """A weight, a variable, or an input of the model."""
        if self.value[tensor] is not None:
            return
        made = self.subgraph.tensors[tensor]
        kind = Kind.PARAMETER if made.is_constant else Kind.BUFFER if made.is_variable else Kind.INPUT
        self.value[tensor] = int(self.builder.input(made.name, made.shape, made.dtype, kind))

    def node(self, operator: TfliteOperator) -> None:
        row = tflite_row(operator.name) or OpSpec(operator.name, host=True)
        operands = operator.operands
        inputs = tuple(self.number(tensor) for tensor in operands)
        base = self.base(operator)
        outputs = tuple(self.made(tensor, base) for tensor in operator.outputs)
        slots = {tensor: Ref(slot) for slot, tensor in enumerate(operands)}
        op = f"tflite.{operator.name}.{operator.version}"
        args = tuple(slots.get(tensor) for tensor in operator.inputs)
        node = Node(
            -1,
            op,
            inputs,
            outputs,
            args,
            effects=Effects(rng=_STREAM if row.rng else None, host=row.host),
        )
        variables = [t for t in operands if self.subgraph.tensors[t].is_variable]
        read = [] if base is not None else [self.storage(self.number(t)) for t in operands]
        number = self.builder.add_node(node, read, [self.storage(self.number(t)) for t in variables])
        scratch = row.workspace(Call(self.builder, self.builder.nodes[number])).constant_value()
        if scratch:
            self.scratch[number] = scratch

    def base(self, operator: TfliteOperator) -> int | None:
        """The storage that a view shows; None where the operator makes bytes of its own."""
        if operator.name not in VIEWS or not operator.inputs or len(operator.outputs) != 1:
            return None
        tensors, (made,) = self.subgraph.tensors, operator.outputs
        given = operator.inputs[0]
        if given < 0 or tensors[given].is_constant or tensors[given].is_variable:
            return None
        is_whole = (
            tensors[given].nbytes == tensors[made].nbytes and tensors[given].dtype == tensors[made].dtype
        )
        return self.storage(self.number(given)) if is_whole and tensors[made].nbytes else None

    def made(self, tensor: int, base: int | None) -> int:
        """The value of a tensor that an operator makes."""
        made = self.subgraph.tensors[tensor]
        shape = tuple(map(SizeExpr.const, made.shape))
        if base is None:
            base = self.builder.storage(made.nbytes, kind=Kind.ACTIVATION, name=made.name)
        number = self.builder.add_value(made.name, made.dtype, shape, contiguous_strides(shape), storage=base)
        self.value[tensor] = number
        return number

    def storage(self, value: int) -> int:
        found = self.builder.values[value].storage
        assert found is not None
        return found

    def mark_output(self, tensor: int) -> None:
        storage = self.builder.storages[self.storage(self.number(tensor))]
        if storage.kind is Kind.ACTIVATION:
            self.builder.storages[storage.id] = replace(storage, kind=Kind.OUTPUT)


def _sizes(graph: Graph) -> dict[int, int]:
    """Bytes in the arena: of weights and variables none, of all others whole units."""
    elsewhere = {Kind.PARAMETER, Kind.BUFFER}
    return {
        storage.id: 0
        if storage.kind in elsewhere
        else -(-storage.nbytes.constant_value() // ALIGNMENT) * ALIGNMENT
        for storage in graph.storages
    }

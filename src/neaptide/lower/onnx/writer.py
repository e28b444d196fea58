"""Writes a graph as a valid model file, its nodes in a given order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neaptide.analysis.folded import folded_values
from neaptide.errors import LoweringError, UsageError
from neaptide.frontends.onnx.constants.folding import FoldedWeights
from neaptide.frontends.onnx.dtypes import NUMBERS
from neaptide.frontends.onnx.file import parser_words, require_onnx
from neaptide.frontends.onnx.model import Array, OnnxModel
from neaptide.frontends.onnx.shapes.contributed import WITHOUT_SHAPES
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import LOOP_OP, Node, operand_slots, result_slots
from neaptide.ir.values import Kind
from neaptide.lower.onnx.naming import Names, value_names
from neaptide.lower.onnx.opset_forms import at_opset, listed_numbers
from neaptide.lower.onnx.protos import CONTRIBUTED, NodeWriter
from neaptide.version import VERSION

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

_MOST_INSIDE: Final = 1 << 30
"""Bytes of weights that are written into the model file itself; more go to a file beside it."""


def write_model(
    model: OnnxModel, graph: Graph | None = None, order: Sequence[int] | None = None
) -> ModelProto:
    """A graph that was made from a model file, as a model in memory.

    Weights that are made of weights become initializers, where their numbers can be worked out. Inputs and outputs have the names of the file. Weights in other
    files are read now.

    Args:
        graph: what passes have made of the graph of the model; its own graph by default.
        order: node ids in the order in which they are to run; that of the graph by default.

    Raises:
        LoweringError: the result is no valid model, or an operation has no operator at the model's opset.
        UnsupportedModel: a weight cannot be worked out.
    """
    require_onnx()
    return _Writing(model, model.graph if graph is None else graph).run(order)


def save_model(made: ModelProto, path: Path) -> None:
    """Write a model; weights of more than 1 GiB together go to a file beside it, `NAME.data`."""
    import onnx

    try:
        if sum(len(tensor.raw_data) for tensor in made.graph.initializer) > _MOST_INSIDE:
            path.with_name(f"{path.name}.data").unlink(missing_ok=True)  # onnx appends to one that is there
            onnx.save_model(
                made, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024
            )
        else:
            onnx.save_model(made, path)
    except OSError as error:
        raise UsageError(
            "the model cannot be written", where=str(path), why=error.strerror, next_step="write elsewhere"
        ) from error


@dataclass(frozen=True, slots=True)
class _Emitted:
    """A node of the file, and whether it makes weights."""

    proto: NodeProto
    is_weight: bool


class _Writing:
    def __init__(self, model: OnnxModel, graph: Graph) -> None:
        self.model, self.graph = model, graph
        outputs = [model.file_name(value) for value in model.graph.outputs]
        if len(graph.outputs) != len(outputs):
            raise LoweringError("the graph has other outputs than the model")
        self.name_of, self.copies = value_names(graph, model.names, outputs)
        self.node_names = Names()
        self.nodes = NodeWriter(model.opsets, model.kept)
        self.folded = folded_values(graph)
        lists = ((node.outputs[0], listed_numbers(node)) for node in graph.nodes if not node.inputs)
        self.lists = {self.name_of[value]: found for value, found in lists if found is not None}

    def run(self, order: Sequence[int] | None) -> ModelProto:
        from onnx import helper

        emitted = list(self.emit(range(len(self.graph.nodes)) if order is None else order))
        initializers = self.initializers(emitted)
        graph, model = self.graph, self.model
        free = [value for value in graph.inputs if self.is_input(value)]
        outputs = [model.file_name(value) for value in model.graph.outputs]
        body = helper.make_graph(
            [one.proto for one in emitted if not one.is_weight],
            graph.name or "planned",
            [self.described(value, self.name_of[value]) for value in free],
            [self.described(value, name) for value, name in zip(graph.outputs, outputs, strict=True)],
            initializers,
            value_info=list(self.inner_types(emitted)),
        )
        used = {one.proto.domain for one in emitted}
        opsets = {**({CONTRIBUTED: 1} if CONTRIBUTED in used else {}), **model.opsets}
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        made: ModelProto = helper.make_model(
            body,
            opset_imports=imports,
            ir_version=max(model.ir_version, 4),  # since then a weight is no input
            producer_name="neaptide",
            producer_version=VERSION,
        )
        helper.set_model_props(made, dict(model.metadata))
        _check(made)
        return made

    def is_input(self, value: int) -> bool:
        """Whether the caller hands it over, or may do so in place of the file's own numbers."""
        found = self.graph.values[value]
        assert found.storage is not None
        kind = self.graph.storages[found.storage].kind
        return kind is Kind.BUFFER or found.name not in self.model.weights

    def emit(self, order: Sequence[int]) -> Iterator[_Emitted]:
        """All nodes in an order, those that make weights among them."""
        for number in order:
            node = at_opset(self.graph, self.graph.nodes[number], self.model.opsets.get("", 1))
            if listed_numbers(node) is not None:
                continue
            if node.op == LOOP_OP:
                raise LoweringError(
                    "a loop is not written to a model file",
                    why="ONNX Runtime would hold all its parts at once",
                )
            yield self.node(node)
        for value, name in self.copies:
            from onnx import helper

            label = self.node_names.unique(f"copy_of_{name}")
            made = helper.make_node("Identity", [self.name_of[value]], [name], name=label)
            yield _Emitted(made, is_weight=False)

    def node(self, node: Node) -> _Emitted:
        names = [self.name_of[value] for value in node.inputs]
        made = [self.name_of[value] for value in node.outputs]
        proto = self.nodes.write(
            node,
            ["" if slot is None else names[slot] for slot in operand_slots(node)],
            ["" if slot is None else made[slot] for slot in result_slots(node)],
            dtype=self.graph.values[node.outputs[0]].dtype,
            name=self.node_names.unique(node.source.module) if node.source.module else "",
        )
        return _Emitted(proto, is_weight=self.folded.issuperset(node.outputs))

    def initializers(self, emitted: Sequence[_Emitted]) -> list[TensorProto]:
        """Weights that nodes or outputs use, in the order of their first use."""
        known = self.model.weights
        files = {
            self.name_of[v]: name for v in self.graph.inputs if (name := self.graph.values[v].name) in known
        }

        def given(name: str) -> Array:
            return self.lists[name] if name in self.lists else known[files[name]].array()

        weights = FoldedWeights(given, [e.proto for e in emitted if e.is_weight], self.model.opsets)
        names = {*files, *self.lists, *(self.name_of[value] for value in self.folded)}
        used: dict[str, None] = {}
        for one in emitted:
            if not one.is_weight:
                used.update(dict.fromkeys(_names_used(one.proto)))
        used.update((self.name_of[value], None) for value in self.graph.outputs)
        from onnx import numpy_helper

        return [numpy_helper.from_array(weights.array(name), name) for name in used if name in names]

    def described(self, value: int, name: str) -> ValueInfoProto:
        """Name and type of a value."""
        from onnx import helper

        found = self.graph.values[value]
        shape = [
            extent.constant_value() if extent.is_constant else self.model.dims.get(str(extent), str(extent))
            for extent in found.shape
        ]
        return helper.make_tensor_value_info(name, NUMBERS[found.dtype], shape)

    def inner_types(self, emitted: Sequence[_Emitted]) -> Iterator[ValueInfoProto]:
        """Types of what the inference of onnx may not know: results of operators outside the standard."""
        strange = {name for one in emitted if one.proto.domain for name in one.proto.output}
        outputs = set(self.graph.outputs)
        for value in self.graph.values:
            if value.id not in outputs and self.name_of[value.id] in strange:
                yield self.described(value.id, self.name_of[value.id])


def _names_used(node: NodeProto) -> Iterator[str]:
    """Operands of a node, and what its subgraphs use from around them."""
    from neaptide.frontends.onnx.bodies import captures_of

    yield from node.input
    yield from captures_of(node)


def _check(made: ModelProto) -> None:
    """Our own model must pass the full check of onnx; one that is too large for it in memory is not checked."""
    from onnx import checker

    if made.ByteSize() > _MOST_INSIDE:
        return
    operators = {node.op_type for node in made.graph.node}
    try:
        checker.check_model(made, full_check=WITHOUT_SHAPES.keys().isdisjoint(operators))
    except Exception as error:
        raise LoweringError(
            "the planned graph makes no valid model", why=f"onnx says: {parser_words(error)}"
        ) from error

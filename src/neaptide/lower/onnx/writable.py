"""Passes of which the file of a model can hold what they insert: its opset has the operators, for these element types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from neaptide.analysis.folded import folded_values
from neaptide.errors import RewriteError
from neaptide.frontends.onnx.dtypes import NUMBERS
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.nodes import Node, operand_slots
from neaptide.ir.registry import OpRegistry
from neaptide.ops.onnx.table import operator_of
from neaptide.transform.rewrite import STATIC, Rewrite, Rule, Sizes

if TYPE_CHECKING:
    from onnx.defs import OpSchema


def writable(rules: Mapping[str, Rule], opset: int) -> dict[str, Rule]:
    """The rules, each of which refuses a change that a file of this opset of the standard domain cannot hold."""
    holds = _Holds(opset)

    def checked(rule: Rule) -> Rule:
        def apply(graph: Graph, registry: OpRegistry, rewrite: Rewrite, sizes: Sizes = STATIC) -> Edited:
            edited = rule.apply(graph, registry, rewrite, sizes)
            for node in edited.graph.nodes:
                holds.check(edited.graph, node)
            return edited

        return replace(rule, apply=apply)

    return {name: checked(rule) for name, rule in rules.items()}


class _Holds:
    """Which operators an opset has; its schemas are looked up once."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self._schemas: dict[str, OpSchema | None] = {}  # by operation, where the opset has another version

    def check(self, graph: Graph, node: Node) -> None:
        """Refuse a node of another version than the opset has, if the one of the opset does not take its operands."""
        if node.op not in self._schemas:
            self._schemas[node.op] = self._other_version(node.op)
        schema = self._schemas[node.op]
        if schema is None or folded_values(graph).issuperset(node.outputs):
            return
        formal = schema.inputs
        for position, slot in enumerate(operand_slots(node)):
            if slot is None or (position >= len(formal) and not _repeats(schema)):
                continue
            dtype = graph.values[node.inputs[slot]].dtype
            if _type_name(dtype) not in formal[min(position, len(formal) - 1)].types:
                raise RewriteError(f"{schema.name} of opset {self.opset} takes no {dtype}")

    def _other_version(self, op: str) -> OpSchema | None:
        """The schema of an operator at the opset, where that is not the one that the operation names."""
        from onnx import defs

        operator = operator_of(op)
        if operator is None:
            return None
        try:
            schema = defs.get_schema(operator, self.opset)
        except defs.SchemaError:
            raise RewriteError(f"opset {self.opset} has no operator {operator}") from None
        return None if schema.since_version == int(op.rpartition(".")[2]) else schema


def _repeats(schema: OpSchema) -> bool:
    from onnx import defs

    return bool(schema.inputs) and schema.inputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic


def _type_name(dtype: str) -> str:
    from onnx import TensorProto

    return f"tensor({TensorProto.DataType.Name(NUMBERS[dtype]).lower()})"

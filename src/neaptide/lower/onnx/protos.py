"""One node of a graph as a node of a file: its operator, operands, attributes, subgraphs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from neaptide.analysis.folded import AT_EACH_RUN
from neaptide.errors import LoweringError
from neaptide.frontends.onnx.dtypes import NUMBERS
from neaptide.frontends.onnx.model import KEPT, Kept
from neaptide.ir.nodes import Arg, Node
from neaptide.ops.onnx.movement import BODY_BYTES
from neaptide.ops.onnx.table import DOMAIN
from neaptide.symbolic.size_expr import SizeExpr

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto
    from onnx.defs import OpSchema

CONTRIBUTED: Final = "com.microsoft"
"""A domain of ONNX Runtime, version 1, of which passes insert operators that the standard lacks."""

_OURS: Final = frozenset({KEPT, BODY_BYTES, AT_EACH_RUN})


class NodeWriter:
    """Writes nodes for the opsets of one model."""

    def __init__(self, opsets: Mapping[str, int], kept: Mapping[str, Kept]) -> None:
        self.opsets, self.kept = opsets, kept
        domains = (*opsets, CONTRIBUTED)
        self._domains = {re.sub(r"\W", "_", domain): domain for domain in domains if domain}

    def operator(self, op: str) -> tuple[str, str]:
        """Domain and operator of an operation."""
        space, _, rest = op.partition(".")
        operator = rest.rpartition(".")[0]
        if space == DOMAIN:
            return "", operator
        if space not in self._domains or not operator:
            raise LoweringError(f"{op} is no operation of an ONNX file", why="only operators are written")
        return self._domains[space], operator

    def write(
        self, node: Node, operands: Sequence[str], results: Sequence[str], *, dtype: str, name: str = ""
    ) -> NodeProto:
        """A node of a file.

        Args:
            operands: names by argument; an absent one is empty.
            results: names by result; one that is not made is empty.
            dtype: of the first result.
        """
        key = node.kwarg(KEPT)
        if isinstance(key, str):
            return _kept(self.kept[key], operands, results, name)
        from onnx import NodeProto

        domain, operator = self.operator(node.op)
        schema = self._schema(domain, operator)
        made = NodeProto(op_type=operator, domain=domain, name=name)
        made.input[:] = _without_end(operands)
        made.output[:] = _without_end(results)
        for key, value in node.kwargs:
            if key not in _OURS:
                made.attribute.append(_attribute(node, schema, key, value, dtype))
        if schema is not None:
            _check_fit(node, schema, made)
        return made

    def _schema(self, domain: str, operator: str) -> OpSchema | None:
        from onnx import defs

        try:
            return defs.get_schema(operator, self.opsets.get(domain, 1), domain)
        except defs.SchemaError:
            if domain:
                return None
            raise LoweringError(
                f"opset {self.opsets.get(domain)} has no operator {operator}",
                why="a pass has inserted it for another opset",
            ) from None


def _check_fit(node: Node, schema: OpSchema, made: NodeProto) -> None:
    """Another version of the schema than that of the node will do, if it takes the same operands and attributes."""
    version = int(node.op.rpartition(".")[2])
    if version == schema.since_version:
        return
    fits = schema.min_input <= len(made.input) <= schema.max_input
    if not fits or any(attribute.name not in schema.attributes for attribute in made.attribute):
        raise LoweringError(
            f"{node.op} is not written in a model whose opset has version {schema.since_version} of it",
            why="the two take other operands or attributes",
        )


def _attribute(node: Node, schema: OpSchema | None, key: str, value: Arg, dtype: str) -> AttributeProto:
    from onnx import defs, helper

    if key == "value" and node.op.partition(".")[2].startswith("ConstantOfShape."):
        tensor = helper.make_tensor("value", NUMBERS[dtype], [1], [value])
        return helper.make_attribute(key, tensor)
    plain = _plain(value)
    if schema is None or key not in schema.attributes:
        return helper.make_attribute(key, plain)
    kind = schema.attributes[key].type
    if kind in {defs.OpSchema.AttrType.FLOAT, defs.OpSchema.AttrType.FLOATS}:
        plain = [float(item) for item in plain] if isinstance(plain, list) else float(plain)
    return helper.make_attribute(key, plain, attr_type=int(kind.value))


def _plain(value: Arg) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, SizeExpr):
        return value.constant_value()
    return int(value) if isinstance(value, bool) else value


def _kept(kept: Kept, operands: Sequence[str], results: Sequence[str], name: str) -> NodeProto:
    """A node as its file had it, with other names of what it takes, makes, and uses inside."""
    made = type(kept.proto)()
    made.CopyFrom(kept.proto)
    count = len(operands) - len(kept.captures)
    made.input[:] = _without_end(operands[:count])
    made.output[:] = _without_end(results)
    made.name = name
    renamed = {old: new for old, new in zip(kept.captures, operands[count:], strict=True) if old != new}
    if renamed:
        for attribute in made.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rename(graph, renamed)
    return made


def _rename(graph: GraphProto, renamed: Mapping[str, str]) -> None:
    own = {*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)}
    left = {old: new for old, new in renamed.items() if old not in own}
    for node in graph.node:
        node.input[:] = [left.get(name, name) for name in node.input]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rename(inner, left)
    for value in graph.output:
        value.name = left.get(value.name, value.name)


def _without_end(names: Iterable[str]) -> list[str]:
    """Names without absent ones at the end."""
    found = list(names)
    while found and not found[-1]:
        found.pop()
    return found

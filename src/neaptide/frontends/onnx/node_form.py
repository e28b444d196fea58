"""Whether nodes have the operands, results and attributes that the schema of their operator asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from neaptide.errors import TargetError
from neaptide.frontends.onnx.draft import called, subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto
    from onnx.defs import OpSchema

_NEXT = "check the model with onnx.checker.check_model, and export it again"


def check_text(model: ModelProto) -> None:
    """Refuse a model with names that are no text: a file may hold any bytes. O(size)."""
    pending, names = [model.graph], [opset.domain for opset in model.opset_import]
    for function in model.functions:
        names += [function.name, function.domain, *function.input, *function.output, *function.attribute]
        _take_nodes(function.node, names, pending)
    while pending:
        graph = pending.pop()
        names += [graph.name, *(tensor.name for tensor in graph.initializer)]
        for value in (*graph.input, *graph.output, *graph.value_info):
            names.append(value.name)
            names += [dim.dim_param for dim in value.type.tensor_type.shape.dim]
        _take_nodes(graph.node, names, pending)
    for name in names:
        if not isinstance(name, str):
            raise TargetError(f"the model has a name that is no text: {bytes(name)!r}", next_step=_NEXT)


def _take_nodes(nodes: Iterable[NodeProto], names: list[str], pending: list[GraphProto]) -> None:
    for node in nodes:
        names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [attribute.name for attribute in node.attribute]
        pending += subgraphs(node)


def check_nodes(nodes: Iterable[NodeProto], opsets: Mapping[str, int]) -> None:
    """Refuse nodes that break the schema of their operator, those of subgraphs included. Unknown operators pass. O(size)."""
    known: dict[tuple[str, str], OpSchema | None] = {}
    stack = list(nodes)
    while stack:
        node = stack.pop()
        key = (node.domain, node.op_type)
        if key not in known:
            known[key] = _schema(node, opsets)
        if (fault := _attribute_fault(node, known[key]) or _count_fault(node, known[key])) is not None:
            raise TargetError(f"{called(node)} {fault}", next_step=_NEXT)
        stack += [each for inner in subgraphs(node) for each in inner.node]


def _schema(node: NodeProto, opsets: Mapping[str, int]) -> OpSchema | None:
    from onnx import defs

    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        return defs.get_schema(node.op_type, opsets.get(domain, 1), domain)
    except defs.SchemaError:
        return None


def _count_fault(node: NodeProto, schema: OpSchema | None) -> str | None:
    """What is wrong with the number of operands or results, as the rest of a sentence."""
    if schema is None:
        return None
    counts = (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    )
    for what, count, least, most in counts:
        if not least <= count <= most:
            return f"has {count} {what}, and its operator {least} to {most}"
    return None


def _attribute_fault(node: NodeProto, schema: OpSchema | None) -> str | None:
    """What is wrong with the attributes, as the rest of a sentence."""
    formal = {} if schema is None else schema.attributes
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            return f"takes {attribute.name!r} from a function, and is in none"
        if not attribute.type:
            return f"has an attribute {attribute.name!r} without a type"
        if attribute.name in formal and int(formal[attribute.name].type) != attribute.type:
            return f"has an attribute {attribute.name!r} of the wrong type"
    there = {attribute.name for attribute in node.attribute}
    missing = next((name for name, one in formal.items() if one.required and name not in there), None)
    return None if missing is None else f"lacks the attribute {missing!r}"

"""From a model of sound form to a draft: functions inlined, `Constant` nodes lifted, dims bound and named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neaptide.errors import TargetError, UnsupportedModel, UsageError
from neaptide.frontends.onnx.bodies import captures_of
from neaptide.frontends.onnx.constants.weights import constant_of, weight_of
from neaptide.frontends.onnx.draft import Draft
from neaptide.frontends.onnx.file import opsets_of, parser_words
from neaptide.frontends.onnx.model import Weight
from neaptide.frontends.onnx.node_form import check_nodes

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

_INPUTS_ARE_DEFAULTS: Final = 4
"""Since this version of the format, a weight that is an input as well is its default."""


def prepare(model: ModelProto, path: Path | None, dims: Mapping[str, int]) -> Draft:
    """The draft of a model, with some of the dims of its inputs bound to numbers. The model is left as it is.

    Raises:
        UsageError: no input has a dim of a name in `dims`, or its size is negative.
        UnsupportedModel: it holds sparse weights.
        TargetError: a function or a weight of it is not sound.
    """
    graph = _inlined(model)
    if graph.sparse_initializer:
        raise UnsupportedModel(
            f"the weight {graph.sparse_initializer[0].values.name!r} is sparse",
            why="only dense tensors are planned",
            next_step="export the model with dense weights",
        )
    opsets = opsets_of(model)
    check_nodes(graph.node, opsets)
    folder = None if path is None else path.absolute().parent
    weights = {tensor.name: weight_of(tensor, folder) for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in {"", "ai.onnx"}:
            weights[node.output[0]] = constant_of(node)
        else:
            nodes.append(node)
    inputs = [value for value in graph.input if value.name not in weights]
    _check_dims(inputs, dims)
    used = {value.name for value in graph.output}
    for node in nodes:
        used.update(node.input, captures_of(node))
    return Draft(
        [_trimmed(node, used, opsets) for node in nodes],
        [_bound(value, dims, is_input=True) for value in inputs],
        [_bound(value, dims) for value in graph.output],
        weights,
        opsets,
        model.ir_version,
        path,
        [_bound(value, dims) for value in graph.value_info],
        _replaceable(graph, weights, model.ir_version),
    )


def _replaceable(graph: GraphProto, weights: Mapping[str, Weight], ir_version: int) -> frozenset[str]:
    """Weights that are inputs too. Before version 4 of the format all are, and ONNX Runtime takes no other numbers for them."""
    if ir_version < _INPUTS_ARE_DEFAULTS:
        return frozenset()
    named = {value.name for value in graph.input}
    return frozenset(weights).intersection(named)


def _inlined(model: ModelProto) -> GraphProto:
    """The graph without calls of the model's own functions."""
    if not model.functions:
        return model.graph
    from onnx import inliner

    try:
        inlined = inliner.inline_local_functions(model)
    except (RuntimeError, ValueError) as error:
        raise TargetError(
            "a function of the model cannot be put in the place of its calls",
            why=parser_words(error),
            next_step="check the model with onnx.checker.check_model",
        ) from error
    graph: GraphProto = inlined.graph
    return graph


def _trimmed(node: NodeProto, used: Collection[str], opsets: Mapping[str, int]) -> NodeProto:
    """A node without results that are optional and that nobody uses: masks, indices, last states."""
    if all(name in used for name in node.output):
        return node
    from onnx import defs

    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        formal = defs.get_schema(node.op_type, opsets.get(domain, 1), domain).outputs
    except defs.SchemaError:
        return node
    optional = defs.OpSchema.FormalParameterOption.Optional
    names = [
        "" if name not in used and k < len(formal) and formal[k].option == optional else name
        for k, name in enumerate(node.output)
    ]
    while names and not names[-1]:
        names.pop()
    made = type(node)()
    made.CopyFrom(node)
    made.output[:] = names
    return made


def _check_dims(inputs: list[ValueInfoProto], dims: Mapping[str, int]) -> None:
    named = {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    for name, size in dims.items():
        if name not in named:
            raise UsageError(
                f"no input of the model has a dim {name!r}",
                why=f"its dims are {', '.join(sorted(named))}" if named else "all its shapes are numbers",
                next_step="name one of these" if named else "leave it out",
            )
        if size < 0:
            raise UsageError(f"a dim has {size} elements", where=name, next_step="give 0 or more")


def _bound(value: ValueInfoProto, dims: Mapping[str, int], *, is_input: bool = False) -> ValueInfoProto:
    """A value with bound dims as numbers; an unnamed dim of an input gets a name."""
    if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.HasField("shape"):
        return value
    made = type(value)()
    made.CopyFrom(value)
    for axis, dim in enumerate(made.type.tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            continue
        if dim.dim_param in dims:
            dim.dim_value = dims[dim.dim_param]
        elif is_input and (not dim.dim_param or dim.dim_param.startswith("unk__")):
            dim.dim_param = f"{value.name}_{axis}"
    return made

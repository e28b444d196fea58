"""Types of all values of a model, by the shape inference of onnx, on a copy without the bytes of weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from neaptide.errors import TargetError, UnsupportedModel
from neaptide.frontends.onnx.draft import Draft, Extent, TensorType, called, subgraphs, tensor_type
from neaptide.frontends.onnx.dtypes import NUMBERS
from neaptide.frontends.onnx.file import parser_words
from neaptide.frontends.onnx.model import Array
from neaptide.frontends.onnx.shapes.contributed import makes_floats, stand_in

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

_FLOAT: Final = "float32"
_UNKNOWN: Final = "unk__"
"""How onnx begins the name of a dim that it has made up."""
_CONTRADICTION: Final = "[ShapeInferenceError]"
"""How onnx begins what it says of operands that do not go together."""


def type_proto(known: TensorType) -> TypeProto:
    """A type as a file has it."""
    from onnx import helper

    made: TypeProto = helper.make_tensor_type_proto(NUMBERS[known.dtype], known.shape)
    return made


def tensor_of(name: str, array: Array) -> TensorProto:
    """An array as a file has it."""
    from onnx import numpy_helper

    made: TensorProto = numpy_helper.from_array(array, name)
    return made


def infer_types(draft: Draft) -> None:
    """Fills in `draft.types` as far as one pass of shape inference comes. Weights that it must know are those in `known`.

    Raises:
        TargetError: the model contradicts itself in a way that the inference cannot pass over.
    """
    from google.protobuf.message import EncodeError
    from onnx import shape_inference

    model = _without_bytes(draft)
    try:
        found = shape_inference.infer_shapes(model, data_prop=True)
    except (shape_inference.InferenceError, EncodeError, RuntimeError, ValueError) as error:
        raise TargetError(
            "the shapes of the model cannot be worked out",
            why=parser_words(error),
            next_step="check the model with onnx.checker.check_model(model, full_check=True)",
        ) from error
    remember(draft, (*found.graph.input, *found.graph.value_info, *found.graph.output))
    # Subgraphs come back with the types of their values.
    draft.nodes[:] = [
        inferred if any(a.HasField("g") or a.graphs for a in node.attribute) else node
        for node, inferred in zip(draft.nodes, found.graph.node, strict=True)
    ]


def remember(draft: Draft, values: Iterable[ValueInfoProto]) -> None:
    """Notes the types of some values, but for dims that the inference has made up."""
    for value in values:
        known = _sequence_apart(value)
        if known is not None:
            draft.types[value.name] = known


def infer_node(draft: Draft, node: NodeProto, operands: Mapping[str, TensorType]) -> str:
    """Types of what one node makes, noted; in words why there are none, or nothing."""
    if (other := stand_in(node)) is not None:
        # Only the shape counts: standard operators refuse whole numbers where these take them.
        floats = {name: TensorType(_FLOAT, operands[name].shape) for name in other.input}
        why = infer_node(draft, other, floats)
        found = draft.types.get(node.output[0])
        if found is not None:
            dtype = _FLOAT if makes_floats(node) else operands[other.input[0]].dtype
            draft.types[node.output[0]] = TensorType(dtype, found.shape)
        return why
    types = _inferred(draft, node, operands)
    if isinstance(types, str):
        return types
    for name, declared in types.items():
        known = tensor_type(declared, f"{name!r}, which {called(node)} makes,")
        if known is not None:
            before = draft.types.get(name)
            draft.types[name] = known if before is None else _merged(before, known)
    return ""


def check_operands(draft: Draft, node: NodeProto) -> None:
    """Refuse a node that cannot run on its operands, whatever the file says that it makes.

    Raises:
        TargetError: names the node.
    """
    operands = {name: draft.types[name] for name in node.input if name}
    if stand_in(node) is not None or any(subgraphs(node)):
        return
    found = _inferred(draft, node, operands)
    if isinstance(found, str) and found.startswith(_CONTRADICTION):
        shapes = (f"{known.dtype}{list(known.shape or ())}" for known in operands.values())
        raise TargetError(
            f"{called(node)} cannot run on {', '.join(shapes)}",
            why=found.removeprefix(_CONTRADICTION).strip(),
            next_step="export the model again",
        )


def _inferred(
    draft: Draft, node: NodeProto, operands: Mapping[str, TensorType]
) -> Mapping[str, TypeProto] | str:
    """What onnx says of the results of a node; in words why it says nothing."""
    from onnx import checker, defs, helper, shape_inference

    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        schema = defs.get_schema(node.op_type, draft.opsets.get(domain, 1), domain)
    except defs.SchemaError:
        return f"the operator {domain + '.' if domain else ''}{node.op_type} is not known"
    data = {name: tensor_of(name, draft.known[name]) for name in node.input if name in draft.known}
    imports = [helper.make_opsetid(name, version) for name, version in draft.opsets.items()]
    types = {name: type_proto(known) for name, known in operands.items()}
    try:
        found: Mapping[str, TypeProto] = shape_inference.infer_node_outputs(
            schema, node, types, data, None, imports
        )
    except (checker.ValidationError, shape_inference.InferenceError, RuntimeError, KeyError) as error:
        return parser_words(error)
    return found


def check_known(draft: Draft, node: NodeProto, why: str) -> None:
    """Refuse a node that makes something of unknown size.

    Raises:
        UnsupportedModel: names the node, and the dims that could be bound.
    """
    for name in node.output:
        known = draft.types.get(name)
        if not name or (known is not None and known.is_known):
            continue
        free = sorted({d for v in draft.inputs for d in _free_dims(draft, v.name)})
        raise UnsupportedModel(
            f"the shape of {name!r}, which {called(node)} makes, is not known",
            where=None if known is None or known.shape is None else f"{known.dtype}{list(known.shape)}",
            why=why or "it depends on numbers that are known only when the model runs",
            next_step=f"say the sizes of {', '.join(free)}: --dim {free[0]}=1"
            if free
            else "export the model with fixed shapes, or plan the part before it",
        )


def _free_dims(draft: Draft, name: str) -> list[str]:
    known = draft.types.get(name)
    return [dim for dim in (known.shape or () if known is not None else ()) if isinstance(dim, str)]


def _merged(before: TensorType, now: TensorType) -> TensorType:
    """Two answers for one value: a number is taken before a name, a name before nothing."""
    if before.shape is None or now.shape is None or len(before.shape) != len(now.shape):
        return now if now.shape is not None else before
    pairs = zip(before.shape, now.shape, strict=True)
    return TensorType(now.dtype, tuple(_better(one, other) for one, other in pairs))


def _better(one: Extent, other: Extent) -> Extent:
    if isinstance(one, int) or other is None:
        return one
    return other


def _sequence_apart(value: ValueInfoProto) -> TensorType | None:
    """The type of a tensor; None for a sequence, which a later step refuses with the node that makes it."""
    if value.type.WhichOneof("value") != "tensor_type":
        return None
    known = tensor_type(value.type, f"the value {value.name!r}")
    if known is None or known.shape is None:
        return known
    shape = tuple(None if isinstance(d, str) and d.startswith(_UNKNOWN) else d for d in known.shape)
    return TensorType(known.dtype, shape)


def _without_bytes(draft: Draft) -> ModelProto:
    """The model for the inference: weights whose numbers shapes cannot depend on are inputs."""
    from onnx import helper

    inputs = list(draft.inputs)
    for name, weight in draft.weights.items():
        if name not in draft.known:
            inputs.append(helper.make_value_info(name, type_proto(TensorType(weight.dtype, weight.shape))))
    graph = helper.make_graph(
        draft.nodes,
        "shapes",
        inputs,
        draft.outputs,
        [tensor_of(name, array) for name, array in draft.known.items() if name in draft.weights],
        value_info=draft.declared,
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in draft.opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=max(draft.ir_version, 4))

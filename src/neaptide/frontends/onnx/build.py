"""From a settled draft to a model whose graph keeps every operator."""

from __future__ import annotations

import keyword
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from neaptide.analysis.folded import AT_EACH_RUN, is_folded
from neaptide.errors import TargetError, UnsupportedModel
from neaptide.frontends.onnx.bodies import body_bytes, captures_of
from neaptide.frontends.onnx.constants.folding import Foldable
from neaptide.frontends.onnx.draft import Draft, TensorType, called, subgraphs
from neaptide.frontends.onnx.model import KEPT, Kept, OnnxModel
from neaptide.frontends.onnx.shapes.inference import check_operands
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.effects import effects_of
from neaptide.ir.nodes import Arg, Effects, Node, Ref, Source
from neaptide.ir.registry import Call, OpRegistry, OpSpec, Trait
from neaptide.ir.values import Kind, contiguous_strides
from neaptide.ops.onnx.movement import BODY_BYTES
from neaptide.ops.onnx.table import op_name
from neaptide.symbolic.size_expr import SizeExpr

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto

_STANDARD: Final = frozenset({"", "ai.onnx"})
_NO_VALUES: Final = frozenset({"TENSOR", "GRAPH", "SPARSE_TENSOR", "TYPE_PROTO"})
_CONSTANT_VALUE: Final = ("ConstantOfShape", "value")


def build(draft: Draft, name: str, registry: OpRegistry) -> OnnxModel:
    """The model of a draft whose shapes are known.

    Weights and the model's inputs are inputs of the graph. A view's first result lies on the storage of its first operand.
    What the standard does not define, and nobody has described, is left where it is, like a conversation with the host.
    """
    return _Building(draft, name, registry).run()


class _Building:
    def __init__(self, draft: Draft, name: str, registry: OpRegistry) -> None:
        self.draft = draft
        self.registry = registry
        self.builder = GraphBuilder(name, registry)
        self.values: dict[str, int] = {}  # by name in the file
        self.kept: dict[str, Kept] = {}
        self.dims: dict[str, str] = {}  # by name in the file, that of the graph
        self.outputs = frozenset(value.name for value in draft.outputs)
        self.weights: set[int] = set()  # and what is made of them before the model runs
        self.foldable = Foldable(draft.weights, draft.opsets)

    def run(self) -> OnnxModel:
        draft, builder = self.draft, self.builder
        for value in draft.inputs:
            if value.name not in draft.types:
                raise UnsupportedModel(
                    f"the input {value.name!r} has no type", next_step="export the model with its types"
                )
            if draft.types[value.name].shape is None:
                raise UnsupportedModel(
                    f"the input {value.name!r} has no shape", next_step="export the model with its shapes"
                )
            builder.add_input(self.make(value.name, draft.types[value.name], Kind.INPUT))
        for name, weight in draft.weights.items():
            kind = Kind.BUFFER if name in draft.replaceable else Kind.PARAMETER
            number = self.make(name, TensorType(weight.dtype, weight.shape), kind)
            builder.add_input(number)
            if kind is Kind.PARAMETER:
                self.weights.add(number)
        for node in draft.nodes:
            self.add(node)
        builder.output(*(self.values[value.name] for value in draft.outputs))
        own = {value: builder.values[number].name for value, number in self.values.items()}
        return OnnxModel(
            builder.finish(),
            {own[name]: weight for name, weight in draft.weights.items()},
            {name: value for value, name in own.items()},
            dict(draft.opsets),
            draft.ir_version,
            self.kept,
            {own_name: name for name, own_name in self.dims.items()},
            draft.path,
        )

    def make(self, name: str, known: TensorType, kind: Kind, storage: int | None = None) -> int:
        """A value of the graph for one of the file, on a storage of its own or a given one."""
        builder = self.builder
        shape = tuple(self.extent(name, extent) for extent in known.shape or ())
        number = builder.add_value(name, known.dtype, shape, contiguous_strides(shape))
        value = builder.values[number]
        if storage is None:
            storage = builder.add_storage(value.nbytes, "cpu", kind, value.name)
        elif name in self.outputs and builder.storages[storage].kind is Kind.ACTIVATION:
            builder.storages[storage] = replace(builder.storages[storage], kind=Kind.OUTPUT)
        builder.values[number] = replace(value, storage=storage)
        self.values[name] = number
        return number

    def extent(self, name: str, extent: int | str | None) -> SizeExpr:
        if isinstance(extent, int):
            return SizeExpr.const(extent)
        assert extent is not None, name
        if extent not in self.dims:
            self.dims[extent] = chosen = _dim_name(extent, self.dims.values())
            self.builder.dim(chosen, low=1)
        return SizeExpr.dim(self.dims[extent])

    def add(self, node: NodeProto) -> None:
        check_operands(self.draft, node)
        op, spec = self.operation(node)
        outputs = list(node.output)
        kwargs, captures = self.attributes(node)
        operands = (*node.input, *captures)
        inputs = tuple(dict.fromkeys(self.values[name] for name in operands if name))
        slot = {value: place for place, value in enumerate(inputs)}
        args = tuple(Ref(slot[self.values[name]]) if name else None for name in operands)
        base = self.builder.values[inputs[0]].storage if self.is_view(node, spec) else None
        made = []
        for place, name in enumerate(outputs):
            if name:
                kind = Kind.OUTPUT if name in self.outputs else Kind.ACTIVATION
                made.append(self.make(name, self.draft.types[name], kind, base if place == 0 else None))
        if base is not None:
            self.check_view(node, inputs[0], made[0])
        results: Arg = None
        if "" in outputs:
            places = iter(range(len(made)))
            results = tuple(Ref(next(places)) if name else None for name in outputs)
        draft = Node(-1, op, inputs, tuple(made), args, tuple(sorted(kwargs.items())))
        rng, host = None, spec is None and node.domain not in _STANDARD
        if spec is not None and base is None:
            effects = effects_of(spec, Call(self.builder, draft))
            reads, rng = effects.reads, effects.rng
        else:
            # A view looks at its further operands alone: its shape, as numbers.
            seen = (self.builder.values[value].storage for value in inputs[base is not None :])
            reads = tuple(s for s in seen if s is not None)
        draft = replace(
            draft,
            effects=Effects((), (), rng, None, host),
            source=Source(module=node.name),
            results=results,
        )
        if is_folded(draft, self.weights):
            if self.foldable.add(node, [self.builder.values[value].dtype for value in inputs]):
                self.weights.update(made)
            else:
                draft = replace(draft, kwargs=tuple(sorted([*draft.kwargs, (AT_EACH_RUN, True)])))
        self.builder.add_node(draft, reads)

    def check_view(self, node: NodeProto, seen: int, shown: int) -> None:
        """Refuse a view of other elements than its operand has: a file may state any shape."""
        given, made = self.builder.values[seen], self.builder.values[shown]
        if given.nbytes.is_constant and made.nbytes.is_constant and given.nbytes != made.nbytes:
            shapes = [", ".join(map(str, value.shape)) for value in (given, made)]
            raise TargetError(
                f"{called(node)} makes [{shapes[1]}] of [{shapes[0]}]",
                why="a result that shows its operand has as many elements",
                next_step="check the shapes that the file states, or export the model again",
            )

    def operation(self, node: NodeProto) -> tuple[str, OpSpec | None]:
        """The name of an operation and its row; a domain that onnx does not know counts its own version."""
        from onnx import defs

        domain = "" if node.domain in _STANDARD else node.domain
        version = self.draft.opsets.get(domain, 1)
        try:
            version = defs.get_schema(node.op_type, version, domain).since_version
        except defs.SchemaError:
            if not domain:
                raise UnsupportedModel(
                    f"{called(node)} is no operator of opset {version}",
                    next_step="export the model again, for an opset that has it",
                ) from None
        op = op_name(node.op_type, version, domain)
        return op, self.registry.find(op)

    def is_view(self, node: NodeProto, spec: OpSpec | None) -> bool:
        """Whether the first result shows the bytes of the first operand. A dropout does, but for one in training."""
        if spec is None or not spec.is_a(Trait.VIEW):
            return False
        if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
            return True
        training = self.draft.known.get(node.input[2])
        if training is None or bool(training):
            raise UnsupportedModel(
                f"{called(node)} draws random numbers",
                why="it is exported for training",
                next_step="export the model for inference; neaptide grad makes a graph that trains",
            )
        return True

    def attributes(self, node: NodeProto) -> tuple[dict[str, Arg], tuple[str, ...]]:
        """Attributes as arguments, and what subgraphs use from around; a node that has others is kept as it is."""
        from onnx import AttributeProto

        kwargs: dict[str, Arg] = {}
        keeps = False
        for attribute in node.attribute:
            kind = AttributeProto.AttributeType.Name(attribute.type)
            if (node.op_type, attribute.name) == _CONSTANT_VALUE:
                kwargs["value"] = _constant_value(attribute)
            elif kind.removesuffix("S") in _NO_VALUES or not attribute.name.isidentifier():
                keeps = True
            else:
                kwargs[attribute.name] = _argument(node, attribute)
        if not keeps:
            return kwargs, ()
        captures = captures_of(node)
        key = f"node_{len(self.kept)}"
        self.kept[key] = Kept(node, captures)
        kwargs[KEPT] = key
        if any(subgraphs(node)):
            kwargs[BODY_BYTES] = body_bytes(node)
        return kwargs, captures


def _argument(node: NodeProto, attribute: AttributeProto) -> Arg:
    from onnx import helper

    value: Any = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return _text(node, value)
    if isinstance(value, int | float):
        return value
    return tuple(_text(node, item) if isinstance(item, bytes) else item for item in value)


def _text(node: NodeProto, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnsupportedModel(
            f"an attribute of {called(node)} is no text", next_step="export the model again"
        ) from error


def _constant_value(attribute: AttributeProto) -> Arg:
    from onnx import numpy_helper

    array = numpy_helper.to_array(attribute.t)
    number = array.reshape(-1)[0]
    return (
        bool(number)
        if array.dtype.kind == "b"
        else int(number)
        if array.dtype.kind in "iu"
        else float(number)
    )


def _dim_name(name: str, taken: Collection[str]) -> str:
    """A dim of a file as one of a graph: an identifier, and unique."""
    base = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    if not base or base[0].isdigit() or keyword.iskeyword(base) or base in {"floordiv", "mod", "max"}:
        base = f"dim_{base}"
    chosen, number = base, 0
    while chosen in taken:
        number += 1
        chosen = f"{base}_{number}"
    return chosen

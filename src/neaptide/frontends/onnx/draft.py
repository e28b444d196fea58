"""Draft: the parts of a model that reading changes, beside the file's own, which it leaves as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from neaptide.frontends.onnx.dtypes import dtype_of
from neaptide.frontends.onnx.model import Array, Weight

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto, TypeProto, ValueInfoProto

Extent: TypeAlias = int | str | None
"""Of an axis: a number, the name of a dim, or nothing that is known."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor; the shape is None where not even the number of axes is known."""

    dtype: str
    shape: tuple[Extent, ...] | None

    @property
    def is_known(self) -> bool:
        return self.shape is not None and None not in self.shape


@dataclass(slots=True, eq=False)
class Draft:
    """A model on its way to a graph.

    Attributes:
        weights: initializers by name, `Constant` nodes and results of shape arithmetic among them.
        known: arrays of small weights of integers, and of what was worked out of shapes.
        replaceable: weights that are inputs as well, whose numbers the caller may replace at every run; none that a shape needs.
        types: by name of a value, where it is known.
        declared: types that the file states, beside those of inputs.
    """

    nodes: list[NodeProto]
    inputs: list[ValueInfoProto]
    outputs: list[ValueInfoProto]
    weights: dict[str, Weight]
    opsets: dict[str, int]
    ir_version: int
    path: Path | None
    declared: list[ValueInfoProto] = field(default_factory=list)
    replaceable: frozenset[str] = frozenset()
    known: dict[str, Array] = field(default_factory=dict)
    types: dict[str, TensorType] = field(default_factory=dict)


def called(node: NodeProto) -> str:
    """A node in a sentence: its operator, and its name or the first value that it makes."""
    name = node.name or next((output for output in node.output if output), "")
    return f"{node.op_type} {name!r}" if name else f"{node.op_type}"


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs in the attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def attribute_of(node: NodeProto, name: str) -> AttributeProto | None:
    """The attribute of a name; None where there is none."""
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def attribute_value(node: NodeProto, name: str, default: Any = None) -> Any:
    """The content of an attribute, or `default`."""
    from onnx import helper

    found = attribute_of(node, name)
    return default if found is None else helper.get_attribute_value(found)


def tensor_type(declared: TypeProto, what: str) -> TensorType | None:
    """The type of a tensor; None where nothing is stated, an error where it is no tensor."""
    from neaptide.errors import UnsupportedModel

    kind = declared.WhichOneof("value")
    if kind is None:
        return None
    if kind != "tensor_type":
        raise UnsupportedModel(
            f"{what} is no tensor but a {kind.removesuffix('_type').replace('_', ' ')}",
            why="only tensors have a size that is known before",
            next_step="export the model without sequences, optionals and sparse tensors; an optimised export has none",
        )
    tensor = declared.tensor_type
    if not tensor.elem_type:
        return None
    dtype = dtype_of(tensor.elem_type, what)
    if not tensor.HasField("shape"):
        return TensorType(dtype, None)
    return TensorType(
        dtype,
        tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim
        ),
    )

"""Whether the form of a model is sound, before anything is worked out from it: quick, whatever the file holds."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Final

from neaptide.errors import TargetError, UnsupportedModel
from neaptide.frontends.onnx.draft import called, subgraphs
from neaptide.frontends.onnx.dtypes import dtype_of
from neaptide.frontends.onnx.node_form import check_text

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

MOST_NODES: Final = 50_000
MOST_NESTED: Final = 32
MOST_BYTES: Final = 1 << 40
"""Of one tensor."""


def check_form(model: ModelProto) -> None:
    """Refuse what is too large or nested too deeply, nodes out of order, names that are made twice, impossible dims. O(size).

    Raises:
        UnsupportedModel: the model is larger than what is planned.
        TargetError: the model is no sound one.
    """
    _check_sizes(model.graph)
    check_text(model)
    _check_names(model.graph, set())
    for tensor in model.graph.initializer:
        check_shape(tensor.dims, dtype_of(tensor.data_type, f"the weight {tensor.name!r}"), tensor.name)
    for value in model.graph.input:
        _check_declared(value, f"the input {value.name!r}")
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        pending += [inner for node in graph.node for inner in subgraphs(node)]
        for value in (*graph.input, *graph.output, *graph.value_info):
            _check_declared(value, f"the value {value.name!r}")


def _check_declared(value: ValueInfoProto, what: str) -> None:
    """Refuse a declared shape that no tensor has; libraries end the process on some of them."""
    declared = value.type.tensor_type
    if declared.elem_type and declared.HasField("shape"):
        dims = [dim.dim_value for dim in declared.shape.dim if dim.HasField("dim_value")]
        check_shape(dims, dtype_of(declared.elem_type, what), value.name)


def check_shape(dims: Iterable[int], dtype: str, name: str) -> None:
    """Refuse a tensor with a negative dim, or larger than any memory."""
    from neaptide.frontends.onnx.dtypes import nbytes_of

    shape = tuple(dims)
    if any(dim < 0 for dim in shape):
        what = f"a dim of {min(shape)}"
    elif (
        prod(shape) >= MOST_BYTES or nbytes_of(dtype, shape) >= MOST_BYTES or max(shape, default=0) >= 1 << 32
    ):
        what = f"the shape {list(shape)}"
    else:
        return
    raise TargetError(
        f"the tensor {name!r} has {what}",
        why="no memory holds such a tensor",
        next_step="export the model again with dims that are meant",
    )


def _check_sizes(graph: GraphProto) -> None:
    count, level = 0, [graph]
    for _depth in range(MOST_NESTED + 1):
        count += sum(len(part.node) for part in level)
        if count > MOST_NODES:
            raise UnsupportedModel(
                f"the model has more than {MOST_NODES} nodes",
                why="searches for an order would take too long",
                next_step="plan the parts of the model one by one",
            )
        level = [inner for part in level for node in part.node for inner in subgraphs(node)]
        if not level:
            return
    raise UnsupportedModel(
        f"the model has subgraphs inside each other, more than {MOST_NESTED} deep",
        next_step="export the model without nested conditions and loops",
    )


def _check_names(graph: GraphProto, around: set[str]) -> None:
    """Each value is made once, and before it is used. Depth is bounded by `_check_sizes`."""
    there = {*around, *(value.name for value in graph.input)}
    there.update(tensor.name for tensor in graph.initializer)
    there.update(sparse.values.name for sparse in graph.sparse_initializer)
    made: set[str] = set()
    for node in graph.node:
        for name in node.input:
            if name and name not in there:
                raise _unmade(graph, node, name)
        for inner in subgraphs(node):
            _check_names(inner, there)
        for name in filter(None, node.output):
            if name in made or (name in there and name not in around):
                raise TargetError(
                    f"the value {name!r} is made twice, the second time by {called(node)}",
                    why="a model names every value once",
                    next_step="export the model again",
                )
            made.add(name)
            there.add(name)
    for value in graph.output:
        if value.name not in there:
            raise TargetError(
                f"the output {value.name!r} is made by no node",
                next_step="export the model again",
            )


def _unmade(graph: GraphProto, node: NodeProto, name: str) -> TargetError:
    later = any(name in other.output for other in graph.node)
    return TargetError(
        f"{called(node)} uses the value {name!r}, "
        + ("before it is made" if later else "which nothing makes"),
        why="the nodes form a cycle or are not in the order in which they run" if later else None,
        next_step="sort the nodes of the file, or export the model again"
        if later
        else "export the model again",
    )

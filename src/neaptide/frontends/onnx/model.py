"""OnnxModel: a graph beside what a file has and a graph does not: numbers of weights, names, versions, subgraphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from neaptide.errors import TargetError, UnreadableFile
from neaptide.ir.graph import Graph

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

Array = NDArray[Any]

KEPT: Final = "neaptide_kept"
"""The keyword argument of a node with an attribute that a graph does not hold: the key of the node in `OnnxModel.kept`."""


@dataclass(frozen=True, slots=True)
class External:
    """Where the bytes of a weight lie: a file inside the folder of the model, and a part of it."""

    path: Path
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """Numbers that are known before the model runs.

    Attributes:
        dtype: as in `ir.values.DTYPE_BYTES`.
        content: the tensor of the file, or an array; the tensor of an external weight has no bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    content: TensorProto | Array
    external: External | None = None

    def array(self) -> Array:
        """The numbers. Bytes outside the model file are read now, and not kept.

        Raises:
            UnreadableFile: the file of the bytes is gone, or shorter than it was.
            TargetError: the bytes are not those of a tensor of this shape.
        """
        if isinstance(self.content, np.ndarray):
            return self.content
        from onnx import TensorProto, numpy_helper

        tensor = self.content
        if self.external is not None:
            tensor = TensorProto(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=_read(self.external)
            )
        try:
            made: Array = numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            raise TargetError(
                f"the weight {tensor.name!r} cannot be read",
                why=str(error),
                next_step="write the model again",
            ) from error
        return made


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A node as its file has it, and the names of values around it that its subgraphs use: its last inputs, in this order."""

    proto: NodeProto
    captures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class OnnxModel:
    """A model file as a graph.

    Weights are inputs of the graph on storages of kind `PARAMETER`; of kind `BUFFER` where the file has them as inputs as
    well, so that the caller may replace their numbers, and no shape depends on these. A node keeps its operator; its arguments are the
    operator's inputs by position, and its attributes are keyword arguments.

    Attributes:
        weights: by name of the graph's value.
        names: by name of the graph's value, the name in the file.
        opsets: versions by domain, `""` for the standard one.
        kept: by key, nodes with subgraphs or attributes that a graph does not hold.
        dims: by name of the graph's dim, the name in the file.
        path: of the file; None for a model from memory.
        metadata: what the file says of itself, by key.
    """

    graph: Graph
    weights: Mapping[str, Weight]
    names: Mapping[str, str]
    opsets: Mapping[str, int]
    ir_version: int
    kept: Mapping[str, Kept]
    dims: Mapping[str, str]
    path: Path | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def small_numbers(self, most: int) -> dict[str, Array]:
        """Numbers of the weights that have at most so many elements, by name: shapes, axes, limits, scales."""
        return {name: weight.array() for name, weight in self.weights.items() if prod(weight.shape) <= most}

    def file_name(self, value: int) -> str:
        """The name of a value in the file; its own name where the file has none."""
        name = self.graph.values[value].name
        return self.names.get(name, name)


def _read(external: External) -> bytes:
    try:
        with external.path.open("rb") as file:
            file.seek(external.offset)
            data = file.read(external.nbytes)
    except OSError as error:
        raise UnreadableFile(
            "the bytes of a weight cannot be read",
            where=str(external.path),
            why=error.strerror,
            next_step="put the file beside the model",
        ) from error
    if len(data) < external.nbytes:
        raise UnreadableFile(
            "the bytes of a weight end too soon",
            where=str(external.path),
            why=f"{len(data)} bytes are there, {external.nbytes} are needed from {external.offset} on",
            next_step="put the whole file beside the model",
        )
    return data

"""Reading a model: the one function that other rooms call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from neaptide.frontends.onnx.model import OnnxModel
from neaptide.ops.onnx import registry

if TYPE_CHECKING:
    from onnx import ModelProto


def read_model(source: ModelProto | str | Path, dims: Mapping[str, int] | None = None) -> OnnxModel:
    """A model file of ONNX, opset 7 or later, as a graph with the numbers of its weights. O(size of the model).

    Functions are inlined, `Constant` nodes are weights, all shapes are known, arithmetic on shapes is done, and nodes
    that nothing needs are gone. The numbers of weights are not touched, and bytes in other files are not read. The model
    that is given stays as it is.

    Args:
        source: a path, or a model in memory.
        dims: sizes of named dims of the inputs, by their names in the file. Dims without a size stay dims of the graph.

    Raises:
        MissingExtra: onnx is not installed.
        TargetError: it is no sound model.
        UnsupportedModel: it holds what has no size that is known before: strings, sequences, shapes that depend on data.
    """
    from neaptide.frontends.onnx.file import load_model

    model, path = load_model(source)
    from neaptide.frontends.onnx.build import build
    from neaptide.frontends.onnx.checks import check_form
    from neaptide.frontends.onnx.prepare import prepare
    from neaptide.frontends.onnx.shapes.settle import settle

    check_form(model)
    draft = prepare(model, path, dims or {})
    settle(draft)
    name = model.graph.name or ("model" if path is None else path.stem)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    return replace(build(draft, name, registry()), metadata=metadata)

"""Random inputs of a model file."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

Array = npt.NDArray[np.generic]


def true_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs that are no initializers: old files list those among the inputs too."""
    given = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in given]


def random_feeds(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Numbers for all inputs: normal for floats, 0 or 1 for integers (ids of words and segments); symbolic sizes are 1."""
    rng = np.random.default_rng(seed)
    return {value.name: _numbers(value, rng) for value in true_inputs(model)}


def largest_error(found: Iterable[Array], expected: Iterable[Array]) -> float:
    """The largest difference relative to the largest magnitude of each output (at least 1). Raises ValueError on other shapes or dtypes."""
    worst = 0.0
    for mine, true in zip(found, expected, strict=True):
        if mine.shape != true.shape or mine.dtype != true.dtype:
            raise ValueError(f"{mine.dtype}{mine.shape} instead of {true.dtype}{true.shape}")
        if not true.size:
            continue
        left, right = mine.astype(np.float64), true.astype(np.float64)
        worst = max(worst, float(np.abs(left - right).max() / max(1.0, np.abs(right).max())))
    return worst


def _numbers(value: onnx.ValueInfoProto, rng: np.random.Generator) -> Array:
    tensor = value.type.tensor_type
    shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if np.issubdtype(dtype, np.floating):
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    return np.asarray(rng.integers(0, 2, shape)).astype(dtype)

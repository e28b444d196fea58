"""Initializers and `Constant` nodes as weights; bytes in other files are found and counted, not read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from neaptide.errors import TargetError, UnreadableFile, UnsupportedModel
from neaptide.frontends.onnx.checks import check_shape
from neaptide.frontends.onnx.draft import called
from neaptide.frontends.onnx.dtypes import NUMBERS, dtype_of, nbytes_of
from neaptide.frontends.onnx.model import Array, External, Weight
from neaptide.ir.values import PACKED

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

_LISTS: Final = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint64": "uint64_data",
    "uint32": "uint64_data",
}
"""Where elements stand that are not raw bytes; those of other types stand in `int32_data`."""


def weight_of(tensor: TensorProto, folder: Path | None) -> Weight:
    """A tensor of a file, whose bytes are as many as its shape says.

    Args:
        folder: of the model file, in which files of bytes lie; None for a model from memory.
    """
    what = f"the weight {tensor.name!r}"
    dtype, shape = dtype_of(tensor.data_type, what), tuple(tensor.dims)
    check_shape(shape, dtype, tensor.name)
    nbytes = nbytes_of(dtype, shape)
    if tensor.data_location == tensor.EXTERNAL:
        return Weight(dtype, shape, tensor, _external(tensor, folder, nbytes))
    if tensor.HasField("raw_data"):
        there = len(tensor.raw_data)
    elif dtype in PACKED or dtype.startswith("complex"):
        return Weight(dtype, shape, tensor)
    else:
        count = len(getattr(tensor, _LISTS.get(dtype, "int32_data")))
        there = nbytes_of(dtype, (count,))
    if there != nbytes:
        raise TargetError(
            f"{what} has {there} bytes",
            why=f"its shape {list(shape)} of {dtype} takes {nbytes}",
            next_step="export the model again",
        )
    return Weight(dtype, shape, tensor)


def weight_from(array: Array) -> Weight:
    """An array as a weight."""
    from onnx import helper

    dtype = dtype_of(helper.np_dtype_to_tensor_dtype(array.dtype), "a constant")
    return Weight(dtype, tuple(array.shape), array)


def constant_of(node: NodeProto) -> Weight:
    """The weight that a `Constant` node holds."""
    from onnx import helper

    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return weight_of(value, None)
        if attribute.name in {"value_float", "value_floats"}:
            return weight_from(np.array(value, dtype=np.float32))
        if attribute.name in {"value_int", "value_ints"}:
            return weight_from(np.array(value, dtype=np.int64))
    raise UnsupportedModel(
        f"{called(node)} holds no tensor of numbers",
        why="strings and sparse tensors are not planned",
        next_step="cut the model before and after it",
    )


def element_type(weight: Weight) -> int:
    """The number of the element type in a file."""
    return NUMBERS[weight.dtype]


def _external(tensor: TensorProto, folder: Path | None, nbytes: int) -> External:
    told = {entry.key: entry.value for entry in tensor.external_data}
    name, what = told.get("location", ""), f"the weight {tensor.name!r}"
    if folder is None:
        raise TargetError(
            f"{what} lies in another file, {name!r}",
            why="a model from memory has no folder in which to look for it",
            next_step="give the path of the model, or load it with its data: onnx.load(path)",
        )
    root = folder.resolve()
    try:
        path = (root / name).resolve()
        inside = bool(name) and path.is_relative_to(root)
        size = path.stat().st_size if inside and path.is_file() else None
        offset, length = int(told.get("offset", "0")), int(told.get("length", nbytes))
    except (OSError, ValueError, RuntimeError) as error:
        raise TargetError(
            f"{what} lies in another file, which is not told well",
            why=str(error)[:200],
            next_step="export the model again",
        ) from error
    if not inside:
        raise TargetError(
            f"{what} lies outside the folder of the model, in {name!r}",
            why="files elsewhere are not opened for a model",
            next_step="put the file beside the model, and export it again",
        )
    if size is None:
        raise UnreadableFile(
            f"{what} lies in a file that is not there", where=str(path), next_step="put it beside the model"
        )
    if length != nbytes or offset < 0 or offset + nbytes > size:
        raise UnreadableFile(
            f"{what} needs {nbytes} bytes from {offset} on",
            where=str(path),
            why=f"the file has {size}" if length == nbytes else f"the model says that it has {length}",
            next_step="put the whole file beside the model, or export it again",
        )
    return External(path, offset, nbytes)

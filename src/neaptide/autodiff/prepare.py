"""A copy of a model that rules can read: opset 18 or later, no functions, constants as initializers, shapes known."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import (
    InlinePass,
    LiftConstantsToInitializersPass,
    RemoveInitializersFromInputsPass,
    ShapeInferencePass,
)

from neaptide.autodiff.emitter import Emitter
from neaptide.autodiff.errors import GradientError
from neaptide.autodiff.recurrent import unroll
from neaptide.errors import UsageError
from neaptide.frontends.onnx.constants.evaluate import evaluate

_MOST_NUMBERS: Final = 4096  # elements of what is worked out: axes, sizes, places
_INPUTS_ARE_DEFAULTS: Final = 4  # version of the format; before it, each initializer must be an input
_IR_OF_OPSET: Final = 8
OPSET: Final = 18
"""The first version of the standard operators that has all that rules emit: scatters that add, reductions with axes as input."""


def prepared(model: ir.Model) -> ir.Model:
    """A copy with one value for each parameter: nothing is folded, shared or removed.

    Raises:
        GradientError: the opset cannot be converted.
        UnsupportedModel: arithmetic on shapes cannot be worked out.
    """
    own = _at_least(ir.from_proto(ir.to_proto(model)), OPSET)
    if own.ir_version < _INPUTS_ARE_DEFAULTS:
        RemoveInitializersFromInputsPass()(own)
    own.ir_version = max(own.ir_version, _IR_OF_OPSET)
    if own.functions:
        InlinePass()(own)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(own)
    infer = ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)
    infer(own)
    while _work_out_numbers(own.graph) or unroll(own.graph):  # each may tell further shapes
        infer(own)
    return own


def _work_out_numbers(graph: ir.Graph) -> bool:
    """Makes initializers of whole numbers that follow from shapes and constants: axes, sizes, places. No parameter is one."""
    emitter, is_changed = Emitter(graph), False
    for node in list(graph):
        made = _whole_numbers(node, graph)
        if made is None:
            continue
        for value, array in zip(node.outputs, made, strict=True):
            value.replace_all_uses_with(emitter.constant(array).value, replace_graph_outputs=False)
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)
            is_changed = True
    return is_changed


def _whole_numbers(node: ir.Node, graph: ir.Graph) -> list[npt.NDArray[Any]] | None:
    """What a node makes, where that is whole numbers that are known; else None."""
    if node.domain not in {"", "ai.onnx"} or any(v.is_graph_output() for v in node.outputs):
        return None
    known = {}
    if node.op_type in {"Shape", "Size"}:
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        if shape is None or not shape.is_static():
            return None
        known = {node.inputs[0].name: np.broadcast_to(np.int64(0), shape.numpy())}
    else:
        for value in node.inputs:
            if value is None:
                continue
            held = value.const_value
            if (
                held is None
                or value.is_graph_input()
                or held.size > _MOST_NUMBERS
                or not held.dtype.is_integer()
            ):
                return None
            known[value.name] = held.numpy()
    made = evaluate(ir.to_proto(node), known, dict(graph.opset_imports)) if known else []
    small = made and all(a.dtype.kind in "iub" and a.size <= _MOST_NUMBERS for a in made)
    return made if small else None


def find_value(model: ir.Model, name: str) -> ir.Value:
    """The value of the main graph with a name.

    Raises:
        UsageError: there is none.
    """
    graph = model.graph
    for value in graph.inputs:
        if value.name == name:
            return value
    if name in graph.initializers:
        return graph.initializers[name]
    for node in graph:
        for value in node.outputs:
            if value.name == name:
                return value
    some = ", ".join(str(v.name) for v in (*graph.outputs, *graph.initializers.values())[:8])
    raise UsageError(f"the model has no value {name!r}", why=f"among its outputs and initializers are {some}")


def _at_least(model: ir.Model, version: int) -> ir.Model:
    given = model.graph.opset_imports.get("", model.graph.opset_imports.get("ai.onnx"))
    if given is None or given >= version:
        return model
    try:
        converted = onnx.version_converter.convert_version(ir.to_proto(model), version)
    except Exception as error:
        raise GradientError(
            f"the model cannot be converted from opset {given} to {version}",
            why=str(error).splitlines()[0],
            next_step="export it with a later opset",
        ) from error
    return ir.from_proto(converted)

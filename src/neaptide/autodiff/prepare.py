"""A copy of a model that rules can read: opset 18 or later, no functions, constants as initializers, shapes known."""

from __future__ import annotations

from typing import Final

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, LiftConstantsToInitializersPass, ShapeInferencePass

from neaptide.autodiff.errors import GradientError
from neaptide.autodiff.recurrent import unroll
from neaptide.errors import UsageError

OPSET: Final = 18
"""The first version of the standard operators that has all that rules emit: scatters that add, reductions with axes as input."""


def prepared(model: ir.Model) -> ir.Model:
    """A copy with one value for each parameter: nothing is folded, shared or removed.

    Raises:
        GradientError: the opset cannot be converted.
    """
    own = _at_least(ir.from_proto(ir.to_proto(model)), OPSET)
    if own.functions:
        InlinePass()(own)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(own)
    inferred = ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(own).model
    return ShapeInferencePass()(inferred).model if unroll(inferred.graph) else inferred


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

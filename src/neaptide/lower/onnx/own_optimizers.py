"""A model as it is, under ONNX Runtime's own optimizers: what a plan must not be worse than."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neaptide.cost.onnxruntime.allocator import CannotMeasure
from neaptide.cost.onnxruntime.model_files import RuntimeOptions, measured_peak
from neaptide.cost.onnxruntime.process import RuntimeProcess
from neaptide.lower.onnx.writer import save_model

if TYPE_CHECKING:
    from onnx import ModelProto
    from onnxruntime import SessionOptions

SETTINGS: Final = (
    RuntimeOptions(optimize="all", priority=False),
    RuntimeOptions(optimize="all", priority=False, reuse=True),
    RuntimeOptions(optimize="all"),
    RuntimeOptions(optimize="extended", priority=False),
    RuntimeOptions(optimize="basic", priority=False),
)
"""Its optimizers choose other kernels, such as convolutions on blocks of channels, which take less scratch."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnOptimizers:
    """A model as it is, the settings under which it needs least, and that, measured."""

    model: ModelProto
    options: RuntimeOptions
    peak_bytes: int

    def session_options(self, options: SessionOptions) -> SessionOptions:
        """Options of a planned file, changed to these."""
        import onnxruntime

        orders = onnxruntime.ExecutionOrder
        level = f"ORT_ENABLE_{self.options.optimize.upper()}"
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.execution_order = orders.PRIORITY_BASED if self.options.priority else orders.DEFAULT
        options.enable_mem_reuse = self.options.reuse
        return options


def own_optimizers(model: ModelProto, planned: ModelProto) -> OwnOptimizers | None:
    """Run a model as it is under some settings, on ones and zeros; None unless one needs less than the planned model. Seconds.

    Both are measured, since a prediction may be a little below what a run takes. None, too, where they do not run on these inputs.

    Raises:
        CannotMeasure: there is no runtime, compiler or Linux here.
    """
    with tempfile.TemporaryDirectory() as folder, RuntimeProcess() as process:
        path, other = Path(folder) / "model.onnx", Path(folder) / "planned.onnx"
        save_model(model, path)
        save_model(planned, other)
        try:
            feeds = _feeds(planned)  # whose dims all have sizes
            peaks = [measured_peak(path, feeds, options, process).peak_bytes for options in SETTINGS]
            planned_bytes = measured_peak(other, feeds, process=process).peak_bytes
        except CannotMeasure:
            return None
    least = min(peaks)
    return OwnOptimizers(model, SETTINGS[peaks.index(least)], least) if least < planned_bytes else None


def _feeds(model: ModelProto) -> dict[str, Any]:
    import numpy as np
    from onnx import helper

    found = {}
    for value in model.graph.input:
        declared = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(declared.elem_type)
        one = 1 if np.issubdtype(dtype, np.floating) else 0
        found[value.name] = np.full([dim.dim_value for dim in declared.shape.dim], one, dtype)
    return found

"""Settings of ONNX Runtime under which a planned file runs as planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neaptide.errors import MissingExtra

if TYPE_CHECKING:
    from onnxruntime import SessionOptions


def session_options(*, keep_dequantisations: bool = True) -> SessionOptions:
    """Options of a session that runs the nodes of a file in their order, and frees each tensor after its last use.

    Nodes run by priority; all have the same, so that the first in the file comes first. Optimizers are off: they would
    undo what was planned. The memory pattern, the reuse of buffers and the arena are off: they hold more than is alive.
    Dequantisations stay as the file has them: the runtime would else copy each for each of its readers before anything
    is optimized, and run the copies after all that the file has.

    Args:
        keep_dequantisations: the runtime's optimizers, where they are turned on again, need them free.

    Raises:
        MissingExtra: onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(
            "onnxruntime is not installed",
            why="the options are its own objects",
            next_step='pip install "onnxruntime"',
        ) from error
    options = onnxruntime.SessionOptions()
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = False
    options.enable_mem_reuse = False
    options.enable_cpu_mem_arena = False
    if keep_dequantisations:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options

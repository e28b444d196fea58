"""The child process: runs ONNX Runtime under the counting allocator. One line of JSON is asked, one is answered.

Started as `python -m neaptide.cost.onnxruntime.child LIBRARY`, with the same library, the allocator, preloaded.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from neaptide.cost.onnxruntime.one_node import chain_model, lone_model, overwriting_model

_RUNS: Final = 2  # the first may fill what stays
_ERRORS_ONLY: Final = 4
_ELEMENTS: Final = {
    f"tensor({name})": kind
    for name, kind in {
        "float": onnx.TensorProto.FLOAT,
        "double": onnx.TensorProto.DOUBLE,
        **{
            name: onnx.TensorProto.DataType.Value(name.upper())
            for name in (
                *("float16", "bfloat16", "bool"),
                *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
            )
        },
    }.items()
}
"""Element types as ONNX Runtime writes them."""
_SHORT, _LONG = 8, 264  # nodes of two chains


def main() -> None:
    """Answer until nobody asks."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    asked: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
        "call": _call,
        "frame": _frame,
        "model": _model,
        "fuse": _fuse,
    }
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = asked[request["ask"]](request)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises is the answer
            answer = {"failure": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"}
        output.write(json.dumps(answer) + "\n")
        output.flush()


def _call(request: Mapping[str, Any]) -> dict[str, Any]:
    """Scratch of a kernel, and the operands on whose bytes it leaves its first result."""
    call, options = request["call"], _options({"threads": request["threads"]})
    size = request["result_bytes"]
    most, _ = _peak(*lone_model(call), options)
    scratch = max(0, most - sum(size))
    in_place = []
    for place in request["overwritable"]:
        both, _ = _peak(*overwriting_model(call, place), options)
        # Two tensors of a size, or one: half of it between.
        if both < scratch + sum(size) + size[0] // 2:
            in_place.append(place)
    return {"workspace_bytes": scratch, "in_place": in_place}


def _frame(_request: Mapping[str, Any]) -> dict[str, Any]:
    """What a run keeps for each value of a model, beside the values' own bytes, and for each on the bytes of another."""

    def of_a_node(kind: str) -> float:
        few, many = (_peak(*chain_model(kind, length), _options({}))[0] for length in (_SHORT, _LONG))
        return (many - few) / (_LONG - _SHORT)

    value = of_a_node("Add") / 2  # its weight is a value too
    return {"value_bytes": value, "shared_bytes": max(of_a_node("Relu") - value, 0.0)}


def _model(request: Mapping[str, Any]) -> dict[str, Any]:
    """Peak of a model file, seconds of a run, and the peak resident size of the process."""
    with np.load(request["feeds"]) as file:
        feeds = {name: file[name] for name in file.files}
    peak, seconds = _peak(request["path"], feeds, _options(request["options"]), request["runs"])
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"peak_bytes": peak, "seconds": seconds, "resident_bytes": resident}


def _fuse(request: Mapping[str, Any]) -> dict[str, Any]:
    """Write the model as ONNX Runtime runs it after its extended fusions, in standard layouts."""
    options = _options({"optimize": "extended"})
    options.optimized_model_filepath = request["target"]
    onnxruntime.InferenceSession(request["path"], options, providers=["CPUExecutionProvider"])
    _state_types(request["target"])
    return {}


def _state_types(path: str) -> None:
    """Add the types of all values to a file: only ONNX Runtime knows what its own operators make."""
    model = onnx.load(path)
    outputs = {value.name for value in model.graph.output}
    asked = onnx.ModelProto.FromString(model.SerializeToString())
    made = {name for node in asked.graph.node for name in node.output if name} - outputs
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(made))
    session = onnxruntime.InferenceSession(
        asked.SerializeToString(), _options({}), providers=["CPUExecutionProvider"]
    )
    del model.graph.value_info[:]
    for value in session.get_outputs():
        kind = _ELEMENTS.get(value.type)
        if value.name in made and kind is not None and all(isinstance(dim, int) for dim in value.shape):
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(value.name, kind, value.shape))
    onnx.save(model, path)


def _peak(
    model: bytes | str, feeds: Mapping[str, NDArray[Any]], options: Any, runs: int = _RUNS
) -> tuple[int, float]:
    """Most bytes allocated during a run, the caller's inputs aside, in the last of some runs; and its seconds."""
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs = [value.name for value in session.get_outputs()]
    operands = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    peak, seconds = 0, 0.0
    for _ in range(runs):
        began = time.perf_counter()
        _LIBRARY.neaptide_begin()
        made = session.run_with_ort_values(outputs, operands)
        peak = int(_LIBRARY.neaptide_peak())
        seconds = time.perf_counter() - began
        del made
    return peak, seconds


def _options(asked: Mapping[str, Any]) -> Any:
    """Session options by name; those of a planned file where nothing is asked."""
    levels = onnxruntime.GraphOptimizationLevel
    by_name = {
        "none": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = asked.get("threads", 1)
    options.inter_op_num_threads = 1
    level = asked.get("optimize", "none")
    options.graph_optimization_level = by_name[level]
    # With optimizers off, it still copies dequantisations that have several readers, and runs the copies last.
    options.add_session_config_entry("session.disable_quant_qdq", "1" if level == "none" else "0")
    options.enable_cpu_mem_arena = asked.get("arena", False)
    options.enable_mem_pattern = asked.get("pattern", False)
    options.enable_mem_reuse = asked.get("reuse", False)
    if asked.get("priority", True):
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    return options


def _library() -> Any:
    library = ctypes.CDLL(sys.argv[1])
    library.neaptide_peak.restype = ctypes.c_size_t
    return library


if __name__ == "__main__":
    _LIBRARY = _library()
    main()

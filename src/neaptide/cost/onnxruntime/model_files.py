"""What ONNX Runtime does with a whole model file: the peak of a run, and the graph that it fuses."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neaptide.cost.onnxruntime.allocator import CannotMeasure
from neaptide.cost.onnxruntime.process import RuntimeProcess

_RUNS: Final = 3  # with memory patterns on, the second is the first that has one


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Session options of ONNX Runtime; the defaults are those for a planned file, not those of the runtime.

    Attributes:
        optimize: `none`, `basic`, `extended` or `all`.
        priority: run in the order of the file.
        pattern: one block for all that the second run needs.
        reuse: a dead buffer waits for a later value of its shape instead of being freed.
        arena: buffers come from blocks that are never given back.
    """

    optimize: str = "none"
    priority: bool = True
    pattern: bool = False
    reuse: bool = False
    arena: bool = False
    threads: int = 1


@dataclass(frozen=True, slots=True)
class RuntimePeak:
    """A run, measured.

    Attributes:
        peak_bytes: most bytes that ONNX Runtime has allocated during the run; inputs are the caller's, weights were there.
        resident_bytes: most bytes of pages of the process, from its start to the end of the run.
    """

    peak_bytes: int
    resident_bytes: int
    seconds: float


def measured_peak(
    path: Path,
    feeds: Mapping[str, NDArray[Any]],
    options: RuntimeOptions | None = None,
    process: RuntimeProcess | None = None,
) -> RuntimePeak:
    """Run a model file three times in a child, and say what the last run took. Half a second and more.

    Args:
        process: whose child runs it, which saves its start; the resident bytes are then those of all that it ran.

    Raises:
        CannotMeasure: there is no runtime, compiler or Linux here, or the model does not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        feeds_file = Path(folder) / "feeds.npz"
        np.savez(feeds_file, **feeds)  # type: ignore[arg-type]  # its stub wants a bool for any keyword
        answer = _asked(
            {
                "ask": "model",
                "path": str(path),
                "feeds": str(feeds_file),
                "options": _plain(options or RuntimeOptions()),
                "runs": _RUNS,
            },
            process,
        )
    return RuntimePeak(answer["peak_bytes"], answer["resident_bytes"], answer["seconds"])


def fused_model(path: Path) -> bytes:
    """A model file as ONNX Runtime runs it after its extended fusions, as the bytes of a model file.

    Layouts stay those of the standard. A fused file names operators of `com.microsoft`, which only ONNX Runtime knows.

    Raises:
        CannotMeasure: there is no runtime, compiler or Linux here, or it refuses the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "fused.onnx"
        _asked({"ask": "fuse", "path": str(path), "target": str(target)})
        return target.read_bytes()


def _asked(question: Mapping[str, Any], process: RuntimeProcess | None = None) -> dict[str, Any]:
    if process is None:
        with RuntimeProcess() as own:
            answer = own.ask(question)
    else:
        answer = process.ask(question)
    if "failure" in answer:
        raise CannotMeasure(
            "ONNX Runtime does not run the model", where=str(question["path"]), why=answer["failure"]
        )
    return answer


def _plain(options: RuntimeOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in RuntimeOptions.__slots__}

"""The parent's side of the child process: started on the first question, again after one that it did not survive."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from neaptide.cost.onnxruntime.allocator import CannotMeasure, counting_library

_MODULE: Final = "neaptide.cost.onnxruntime.child"
_PACKAGES: Final = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino")
ANSWER_TIME_S: Final = 120.0
"""A question that takes longer is given up, and the child with it."""


def runtime_version() -> str:
    """The version of ONNX Runtime that a child would load, without loading it.

    Raises:
        CannotMeasure: it is not installed, or onnx is not.
    """
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            metadata.version("onnx")
            return metadata.version(package)
    raise CannotMeasure("onnxruntime and onnx are not both installed")


class RuntimeProcess:
    """ONNX Runtime in a process of its own, under the counting allocator; a context that ends the process.

    Raises:
        CannotMeasure: there is no runtime here, or no counting allocator.
    """

    def __init__(self) -> None:
        runtime_version()
        self._library: Path = counting_library()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> RuntimeProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the child; `{"failure": why}` where a kernel raised, or the child did not live to answer."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        watch = threading.Timer(ANSWER_TIME_S, process.kill)
        watch.start()
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watch.cancel()
        if line.endswith("\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        code = process.wait()
        self.close()
        return {"failure": f"the process of ONNX Runtime ended with exit code {code}"}

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, str(self._library)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "LD_PRELOAD": ":".join(filter(None, (str(self._library), os.environ.get("LD_PRELOAD")))),
            },
            start_new_session=True,  # Ctrl-C is for us; we end it
        )
        return self._process

    def close(self) -> None:
        """End the child; a question after that starts another one."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process = None

"""Runs `.tflite` files in TensorFlow Lite Micro's own interpreter: what it needs, and what it answers.

`python benchmarks/tflm_runs.py FILE...` prints a line of JSON for each. Every trial is a process of its own: the interpreter
may end its process where an arena is too small.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

_PLENTY: Final = 1 << 26
_STEP: Final = 16  # bytes: arenas are aligned to it


@dataclass(frozen=True, slots=True)
class TflmRun:
    """A file in the interpreter.

    Attributes:
        head_bytes: of its arena, for tensors and scratch.
        tail_bytes: of its arena, for the interpreter itself and for variables.
        smallest_bytes: the smallest arena that runs, to 16 bytes; None where it was not looked for.
        outputs: of one call on drawn inputs, as hexadecimal digits.
    """

    head_bytes: int
    tail_bytes: int
    smallest_bytes: int | None
    outputs: tuple[str, ...]


def run_tflm(paths: Sequence[Path], *, smallest: bool = False) -> list[TflmRun]:
    """What the interpreter says of some files, in a process of their own; the same inputs for files of the same inputs."""
    ran = subprocess.run(
        [sys.executable, __file__, *(["--smallest"] if smallest else []), *map(str, paths)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    return [TflmRun(**{**row, "outputs": tuple(row["outputs"])}) for row in found]


def _measured(path: str, *, smallest: bool) -> TflmRun:
    whole = _tried(path, _PLENTY)
    if whole is None:
        raise RuntimeError(f"{path} does not run")
    said = {name: int(nbytes) for name, nbytes in re.findall(r"(head|tail) (\d+) bytes", whole["said"])}
    least = _smallest(path, said["head"] + said["tail"]) if smallest else None
    return TflmRun(said["head"], said["tail"], least, tuple(whole["outputs"]))


def _smallest(path: str, guess: int) -> int:
    """By bisection; the guess, and one step below it, come first."""
    low, high = guess - _STEP, guess
    while _tried(path, high) is None:
        low, high = high, high + max(high // 8, _STEP)
    while low > 0 and _tried(path, low) is not None:
        low, high = low - max(low // 8, _STEP), low
    while high - low > _STEP:
        middle = (low + high) // 2 // _STEP * _STEP
        low, high = (low, middle) if _tried(path, middle) is not None else (middle, high)
    return high


def _tried(path: str, arena_bytes: int) -> dict[str, Any] | None:
    """Outputs of a call in an arena, and what the interpreter says of it; None where it does not run."""
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as answer:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.dup2(log.fileno(), 2)
                answer.write(json.dumps(_call(path, arena_bytes)).encode())
                answer.flush()
                code = 0
            finally:
                os._exit(code)
        if os.waitpid(child, 0)[1]:
            return None
        log.seek(0)
        answer.seek(0)
        return {"outputs": json.loads(answer.read()), "said": log.read().decode(errors="replace")}


def _modules() -> tuple[Any, Any, Any]:
    """What a call needs; heavy to load."""
    import numpy as np
    from tflite_micro.python.tflite_micro import runtime

    from neaptide.frontends.tflite.reader import read_tflite

    return np, runtime, read_tflite


def _call(path: str, arena_bytes: int) -> list[str]:
    np, runtime, read_tflite = _modules()
    main = read_tflite(path).main
    interpreter = runtime.Interpreter.from_file(path, arena_size=arena_bytes)
    draw = np.random.default_rng(0)
    for index in range(len(main.inputs)):
        details = interpreter.get_input_details(index)
        data = draw.integers(-127, 128, details["shape"])
        scale = 1 if np.issubdtype(details["dtype"], np.integer) else 64
        interpreter.set_input((data / scale).astype(details["dtype"]), index)
    interpreter.invoke()
    outputs = [interpreter.get_output(index).tobytes().hex() for index in range(len(main.outputs))]
    interpreter.print_allocations()
    return outputs


def main() -> None:
    """Prints what the interpreter says of the files that are named."""
    _modules()  # once, before the first child is made
    arguments = sys.argv[1:]
    for path in arguments:
        if not path.startswith("--"):
            print(json.dumps(asdict(_measured(path, smallest="--smallest" in arguments))), flush=True)


if __name__ == "__main__":
    main()

"""The counting allocator: compiled from `counting.c` on demand, kept beside the cost cache, preloaded into a child."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from neaptide.cost.cache import cache_dir
from neaptide.errors import NeaptideError

_SOURCE: Final = Path(__file__).with_name("counting.c")
_COMPILERS: Final = ("cc", "gcc", "clang")
_TIME_LIMIT_S: Final = 60.0


class CannotMeasure(NeaptideError):  # noqa: N818 - what went wrong is name enough
    """Why nothing can be measured here, in one sentence; whoever only wants to plan goes on without."""


def counting_library() -> Path:
    """The compiled allocator; compiled once for each version of its source, in about 0.1 s.

    Raises:
        CannotMeasure: this is no Linux, there is no C compiler, or there is no place for the file.
    """
    if sys.platform != "linux":
        raise CannotMeasure("allocations of ONNX Runtime are counted on Linux only")
    source = _SOURCE.read_bytes()
    target = cache_dir() / f"counting-{hashlib.sha256(source).hexdigest()[:12]}.so"
    if not target.is_file():
        _compile(target)
    return target


def _compile(target: Path) -> None:
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", ""), *_COMPILERS))), None)
    if compiler is None:
        raise CannotMeasure("no C compiler (cc) was found to build the counting allocator with")
    unfinished = target.with_suffix(f".{os.getpid()}")
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(unfinished), str(_SOURCE), "-ldl", "-lpthread"]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(command, check=True, capture_output=True, timeout=_TIME_LIMIT_S)
        unfinished.replace(target)
    except (OSError, subprocess.SubprocessError) as error:
        stderr = getattr(error, "stderr", None) or b""
        lines = stderr.decode("utf-8", "replace").strip().splitlines()
        told = next((line for line in lines if "error" in line), lines[0] if lines else str(error))
        raise CannotMeasure(
            f"{compiler} did not build the counting allocator in {target.parent}",
            why=told,
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)

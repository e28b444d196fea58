"""What every benchmark writes beside its numbers, and how one of its parts runs in a process of its own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

RESULTS: Final = Path(__file__).resolve().parent / "results"
MIB: Final = 2**20
GIB: Final = 2**30
_PACKAGES: Final = ("neaptide", "torch", "transformers", "numpy", "scipy", "onnx", "onnxruntime")
_ERROR_LINES: Final = 3  # of a part that failed


def machine() -> dict[str, Any]:
    """Processor, cores, load and system: what a time depends on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "threads": 1,  # of torch, in every part: `run_part` sets it
    }


def versions() -> dict[str, str | None]:
    """Versions of what the numbers depend on; None for a package that is not here. Imports none of them."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def recorded(
    rows: Sequence[Mapping[str, Any]], *, seed: int, repeats: int, **settings: Any
) -> dict[str, Any]:
    """A result as it is written: rows with the machine, versions, seed, repeats and date."""
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "seed": seed,
        "repeats": repeats,
        "settings": settings,
        "rows": list(rows),
    }


def save(name: str, result: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write a result as `NAME.json`, all of it or nothing; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time is inside for a folder; it is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width, the first to the left and the others to the right."""
    lines = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    shown = []
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        shown.append("  ".join(cells).rstrip())
    shown.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(shown)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table for a page."""
    lines = [" | ".join(columns), *(" | ".join(row) for row in rows)]
    shown = [f"| {line} |" for line in lines]
    shown.insert(1, "|" + "---|" * len(columns))
    return shown


def run_part(
    script: str, *arguments: str, timeout_s: float, environment: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Run `python SCRIPT ARGUMENTS` in a fresh process on one thread; its last line is the result as JSON.

    Memory goes back to the system with the process, and one that dies does not take the others along.

    Args:
        script: of this folder.
        arguments: of the script.
        timeout_s: after which it is ended.
        environment: what the process finds in its environment besides ours, where that does not say otherwise.

    Returns:
        The result, or `{"failure": text}` with the last lines of what the process complained about.
    """
    command = [sys.executable, str(Path(__file__).parent / script), *arguments]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**environment, **part_environment()},
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"took more than {timeout_s:.0f} s"}
    if done.returncode:
        complaint = [line for line in done.stderr.splitlines() if line.strip()][-_ERROR_LINES:]
        return {"failure": " / ".join(complaint) or f"exit code {done.returncode}"}
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def part_environment() -> dict[str, str]:
    """The environment of a part: one thread, nothing fetched, no chatter."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }


def say(text: str) -> None:
    """Progress, beside the table."""
    print(text, file=sys.stderr, flush=True)

"""The commands about the installation: doctor and devices."""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import asdict, dataclass
from typing import Final

from neaptide.cli.command import Request
from neaptide.cli.process import exit_codes
from neaptide.cost.host import usable_cores
from neaptide.errors import how_to_install
from neaptide.report.document import Table, document
from neaptide.units import format_bytes, format_seconds

OLDEST_PYTHON: Final = (3, 11)
OLDEST_TORCH: Final = (2, 11)
NEWEST_TORCH: Final = (2, 15)
OK, MISSING, WARNING, PROBLEM = "ok", "missing", "warning", "problem"

# Name on PyPI, what it is for, and how to get it; None for what neaptide always brings along.
_PACKAGES: Final = (
    ("torch", "capture and run training steps", how_to_install("torch")),
    ("transformers", "zoo models vit, bert, gpt2, gptneo, llama", how_to_install("zoo")),
    ("numpy", "inner loops", None),
    ("scipy", "small integer programs", None),
    ("msgspec", "plan files", None),
    ("click", "command line", None),
    ("rich", "tables on a terminal", None),
    ("matplotlib", "figures", how_to_install("plots")),
    ("onnx", "model files of ONNX", how_to_install("onnx")),
    ("onnx-ir", "gradients of ONNX models", how_to_install("onnx")),
    ("onnxruntime", "scratch and fusions of ONNX Runtime, measured", "pip install onnxruntime"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor: a part, whether it is ok, missing (an optional one), a warning or a problem, and what to do."""

    name: str
    status: str
    detail: str
    fix: str = ""


def doctor(request: Request) -> int:
    """Says whether this installation can work, and what is missing."""
    findings = [_python(), *map(_package, _PACKAGES), *_conflicts(), *_threads(), _cache(), *_calibrations()]
    problems = [finding for finding in findings if finding.status == PROBLEM]
    if request.console.as_json:
        request.console.json({"ok": not problems, "findings": [asdict(finding) for finding in findings]})
    else:
        rows = tuple((f.name, f.status, f.detail, f.fix) for f in findings)
        words = "No problems." if not problems else f"Problems: {', '.join(f.name for f in problems)}."
        table = Table(("part", "status", "found", "what to do"), rows, left=frozenset({1, 2, 3}))
        request.console.document(document(table, words))
    return exit_codes.NOT_SUPPORTED if problems else exit_codes.DONE


def devices(request: Request) -> int:
    """Lists the devices that can be planned for."""
    import msgspec

    from neaptide.cost.presets import PRESETS

    if request.console.as_json:
        request.console.json({"devices": [msgspec.to_builtins(device) for device in PRESETS.values()]})
        return exit_codes.DONE
    rows = tuple(
        (
            device.name,
            format_bytes(device.main_space.capacity_bytes),
            format_bytes(device.usable_bytes),
            f"{device.main_space.bandwidth_bytes_per_s / 1e9:.0f} GB/s",
            f"{device.rate_flops_per_s('float32') / 1e12:.1f}",
            f"{device.flops_per_s['bfloat16'] / 1e12:.1f}" if "bfloat16" in device.flops_per_s else "-",
            device.source,
        )
        for device in PRESETS.values()
    )
    titles = ("device", "memory", "usable", "bandwidth", "fp32 TFLOP/s", "bf16 TFLOP/s", "source")
    note = "Without --device, this machine is planned for; it is measured once and the result is kept."
    request.console.document(document(Table(titles, rows, left=frozenset({6})), note))
    return exit_codes.DONE


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Finding("python", PROBLEM, version, "use Python 3.11 or newer")
    return Finding("python", OK, f"{version} on {platform.system()} {platform.machine()}")


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _package(entry: tuple[str, str, str | None]) -> Finding:
    name, purpose, command = entry
    version = _version(name)
    if version is None:
        status = PROBLEM if command is None else MISSING
        return Finding(name, status, f"for: {purpose}", command or f"pip install {name}")
    if name == "torch":
        return _torch(version)
    if name == "transformers" and _release(version) < (5, 0):
        return Finding(name, WARNING, f"{version}; the zoo needs 5.0 or newer", how_to_install("zoo"))
    return Finding(name, OK, version)


def _torch(version: str) -> Finding:
    release = _release(version)
    known = f"{'.'.join(map(str, OLDEST_TORCH))} to {'.'.join(map(str, NEWEST_TORCH))}"
    if release < OLDEST_TORCH:
        return Finding("torch", PROBLEM, f"{version}; needed is {known}", 'pip install "torch>=2.11"')
    if release > NEWEST_TORCH:
        return Finding(
            "torch",
            WARNING,
            f"{version}; checked is {known}",
            "if something fails, pip install torch==2.15.*",
        )
    return Finding("torch", OK, version)


def _release(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _conflicts() -> list[Finding]:
    if _version("ortools") and _version("highspy"):
        return [
            Finding(
                "ortools and highspy",
                WARNING,
                "both are installed; they ship different libraries under one name",
                "do not import both in one process",
            )
        ]
    return [Finding("conflicts", OK, "none known here")]


def _threads() -> list[Finding]:
    wanted = os.environ.get("OMP_NUM_THREADS")
    cores = f"{usable_cores()} usable cores"
    if _version("torch") is None:
        return [Finding("threads", OK, cores)]
    try:
        import torch
    except (ImportError, OSError) as error:
        # A wheel for another system or a missing system library: installed, and yet not usable.
        return [Finding("torch import", PROBLEM, str(error), "install torch again, see pytorch.org")]
    suffix = f", OMP_NUM_THREADS={wanted}" if wanted else ""
    accelerator = "none"
    if torch.cuda.is_available():
        accelerator = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    return [
        Finding("threads", OK, f"{torch.get_num_threads()} of torch, {cores}{suffix}"),
        Finding("accelerator", OK, accelerator),
    ]


def _cache() -> Finding:
    from neaptide.cost.cache import cache_dir

    folder = cache_dir()
    # Not Path.exists, which raises below a folder that may not be searched.
    existing = next(path for path in map(str, (folder, *folder.absolute().parents)) if os.path.exists(path))  # noqa: PTH110
    if not (os.path.isdir(existing) and os.access(existing, os.W_OK)):  # noqa: PTH112
        fix = "set NEAPTIDE_CACHE_DIR to a folder that can be written"
        return Finding("cache", WARNING, f"{folder} cannot be written", fix)
    return Finding("cache", OK, f"{folder}{'' if existing == str(folder) else ' (made when needed)'}")


def _calibrations() -> list[Finding]:
    from neaptide.cost.cache import OpCostCache
    from neaptide.cost.devices import calibrations

    found = [
        f"{device.source}: {device.rate_flops_per_s('float32') / 1e9:.0f} GFLOP/s, "
        f"{device.main_space.bandwidth_bytes_per_s / 1e9:.1f} GB/s, {format_seconds(device.launch_s)} a call"
        for device in calibrations(OpCostCache())
    ]
    none = ["none yet; made in seconds when it is needed"]
    return [Finding("calibration", OK, text) for text in found or none]

"""What the operating system says about the machine and this process: processor, memory, pages.

Where it does not tell (another system, a container that hides it), a usual number stands in or the answer is None.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Final

_CPU_INFO: Final = Path("/proc/cpuinfo")
_MEMORY_INFO: Final = Path("/proc/meminfo")
_STATUS: Final = Path("/proc/self/status")
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
# Documented in proc(5): writing 5 resets the peak resident set size to the current one.
_RESET_PEAK: Final = "5"
_CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_VECTOR_SETS: Final = ("sse4", "avx", "fma", "f16c", "amx", "asimd", "sve", "i8mm", "bf16")
_USUAL_CACHE_BYTES: Final = 8 * 2**20
# Version 2 and version 1 of control groups; containers are given their limit here.
_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@cache
def cpu_model() -> str:
    """Name of the processor, as specific as the system tells."""
    return _stated(_CPU_INFO, "model name") or platform.processor() or platform.machine() or "unknown"


@cache
def vector_extensions() -> str:
    """Instruction sets by which libraries choose their kernels, as the system names them; empty where it does not tell."""
    flags = (_stated(_CPU_INFO, "flags") or _stated(_CPU_INFO, "Features")).split()
    return " ".join(sorted(flag for flag in flags if flag.startswith(_VECTOR_SETS)))


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_capacity_bytes() -> int:
    """Bytes of main memory that this process may use: physical memory, or its container's limit if lower."""
    texts = [_read(path).strip() for path in _CGROUP_LIMITS]
    limits = [int(text) for text in texts if text.isdigit() and int(text) > 0]
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *limits])


def memory_available_bytes() -> int:
    """Bytes that can be had now without swapping, at most `memory_capacity_bytes`; that where it is not told."""
    capacity_bytes = memory_capacity_bytes()
    free = _stated(_MEMORY_INFO, "MemAvailable").split()
    return min(capacity_bytes, int(free[0]) * 1024) if free else capacity_bytes


@cache
def last_cache() -> tuple[int, int]:
    """Bytes of the first processor's last cache, and how many processors share it; 8 MiB and 1 where it is not told."""
    found = []
    for level in _CACHES.glob("index*/level"):
        try:
            size, shared = (
                (level.parent / name).read_text("ascii").strip() for name in ("size", "shared_cpu_list")
            )
            found.append((int(level.read_text("ascii")), int(size.removesuffix("K")) * 1024, _count(shared)))
        except (OSError, ValueError):
            continue
    return max(found)[1:] if found else (_USUAL_CACHE_BYTES, 1)


def page_faults() -> int | None:
    """Pages that this process has touched for the first time so far."""
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def high_water_mark_bytes() -> int | None:
    """Most bytes of pages that were resident since the process began or since the last reset."""
    mark = _stated(_STATUS, "VmHWM").split()
    if mark or sys.platform == "win32":
        return int(mark[0]) * 1024 if mark else None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes here, the other systems KiB.
    return peak if sys.platform == "darwin" else peak * 1024


def reset_high_water_mark() -> bool:
    """Makes the next `high_water_mark_bytes` start from now; False where the system does not permit it."""
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        # Not Linux, or /proc is mounted read-only as in many containers: the caller is told.
        return False
    return True


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _stated(path: Path, field: str) -> str:
    """What a file of `label: text` lines says in the first line of that label."""
    for line in _read(path).splitlines():
        label, _, text = line.partition(":")
        if label.strip() == field and text.strip():
            return text.strip()
    return ""


def _count(ranges: str) -> int:
    spans = [part.split("-") for part in ranges.split(",")]
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)

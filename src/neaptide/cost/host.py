"""What the operating system says about the machine: processor model and memory."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Final

_CPU_INFO: Final = Path("/proc/cpuinfo")
_MEMORY_INFO: Final = Path("/proc/meminfo")
_CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
_USUAL_CACHE_BYTES: Final = 8 * 2**20
# Version 2 and version 1 of control groups; containers are given their limit here.
_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@cache
def cpu_model() -> str:
    """Name of the processor, as specific as the system tells."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        # Not Linux, or hidden from us: the generic name has to do.
        lines = []
    for line in lines:
        label, _, value = line.partition(":")
        if label.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "unknown"


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_capacity_bytes() -> int:
    """Bytes of main memory that this process may use: physical memory, or its container's limit if lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            # No such control group on this system.
            continue
        if text.isdigit() and int(text) > 0:
            limits.append(int(text))
    return min(limits)


def memory_available_bytes() -> int:
    """Bytes that can be had now without swapping, at most `memory_capacity_bytes`; that where it is not told."""
    capacity_bytes = memory_capacity_bytes()
    try:
        lines = _MEMORY_INFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        # Not Linux, or hidden from us.
        lines = []
    for line in lines:
        label, _, value = line.partition(":")
        if label == "MemAvailable" and value.split()[:1]:
            return min(capacity_bytes, int(value.split()[0]) * 1024)
    return capacity_bytes


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
            # Not told of this one, or in another form.
            continue
    return max(found)[1:] if found else (_USUAL_CACHE_BYTES, 1)


def _count(ranges: str) -> int:
    """How many numbers a list such as `0-3,8` holds."""
    spans = [part.split("-") for part in ranges.split(",")]
    return sum(int(span[-1]) - int(span[0]) + 1 for span in spans)


def page_faults() -> int | None:
    """Pages that this process has touched for the first time so far; None where the system does not tell."""
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

"""Memory of the whole process as the operating system counts it: a check against gross errors only.

Pages are counted, not tensors: allocator slack, code and Python objects are in it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/status")
_MEMORY: Final = Path("/proc/meminfo")
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
# Documented in proc(5): writing 5 resets the peak resident set size to the current one.
_RESET_PEAK: Final = "5"


def high_water_mark_bytes() -> int | None:
    """Most bytes that were resident since the process began or since the last reset; None if not told."""
    mark = _stated_bytes(_STATUS, "VmHWM")
    if mark is not None or sys.platform == "win32":
        return mark
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes here, the other systems KiB.
    return peak if sys.platform == "darwin" else peak * 1024


def available_bytes() -> int | None:
    """Bytes that this machine can still hand out without swapping; None where the system does not tell."""
    return _stated_bytes(_MEMORY, "MemAvailable")


def reset_high_water_mark() -> bool:
    """Makes the next `high_water_mark_bytes` start from now; False where the system does not permit it."""
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        # Not Linux, or /proc is mounted read-only as in many containers: the caller is told.
        return False
    return True


def _stated_bytes(path: Path, field: str) -> int | None:
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        # No /proc here.
        return None
    for line in lines:
        label, _, value = line.partition(":")
        if label == field:
            return int(value.split()[0]) * 1024
    return None

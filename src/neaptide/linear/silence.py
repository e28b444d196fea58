"""Nothing of what HiGHS writes to stdout.

HiGHS up to 1.12 writes a line for its own developers with C's `printf` whenever it repairs a solution, whatever its
options say. A library may not redirect the descriptor: other threads of the user write to it meanwhile. Instead C's
variable `stdout` points to a sink during the call. Python writes to the descriptor itself and is not concerned.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOCK: Final = threading.Lock()


class _Silence:
    """C's stdout, how many calls keep it silent now, and where it pointed before."""

    def __init__(self) -> None:
        self.depth = 0
        self.before: int | None = None
        self.slot: ctypes.c_void_p | None = None
        self.sink: int | None = None
        libc = _glibc()
        if libc is not None:
            libc.fopen.restype = ctypes.c_void_p
            self.sink = libc.fopen(b"/dev/null", b"w")
            self.slot = ctypes.c_void_p.in_dll(libc, "stdout")


_silence: _Silence | None = None


@contextmanager
def silent_c_stdout() -> Iterator[None]:
    """What C code prints to stdout is dropped, in all threads; the descriptor, and so Python's output, is left alone.

    With another C library than glibc, whose variable may be read-only, nothing is done.
    """
    global _silence  # noqa: PLW0603 - as global as the variable of the C library
    with _LOCK:
        if _silence is None:
            _silence = _Silence()
        held = _silence
        if held.slot is not None and held.sink is not None:
            if held.depth == 0:
                held.before = held.slot.value
                held.slot.value = held.sink
            held.depth += 1
    try:
        yield
    finally:
        with _LOCK:
            if held.slot is not None and held.sink is not None:
                held.depth -= 1
                if held.depth == 0:
                    held.slot.value = held.before


def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # TypeError: Windows has no library of that name
        return None
    return libc if hasattr(libc, "gnu_get_libc_version") else None

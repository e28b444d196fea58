"""Ctrl-C while planning: the first asks for the best plan so far, the second aborts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

_STDERR: Final = 2
_HINT: Final = b"\nstopping with the best plan so far; press Ctrl-C again to abort\n"


@contextmanager
def asking_before_aborting() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second raises KeyboardInterrupt as usual.

    Outside the main thread, where no signal arrives, the event is never set.
    """
    interrupt = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    # None is a handler that was not set from Python, and cannot be put back from here.
    before = signal.getsignal(signal.SIGINT) or signal.default_int_handler

    def ask(signum: int, frame: FrameType | None) -> None:
        del frame
        if interrupt.is_set():
            signal.signal(signum, before)
            raise KeyboardInterrupt
        interrupt.set()
        # Not through sys.stderr: a handler may run in the middle of a write to it.
        with suppress(OSError):
            os.write(_STDERR, _HINT)

    signal.signal(signal.SIGINT, ask)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)

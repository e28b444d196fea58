"""The program `neaptide`, and `python -m neaptide`."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

_INTERRUPTED = 130  # as in cli.process.exit_codes, which is imported below


def run() -> NoReturn:
    """Runs the command line and ends the process.

    Imports take longer than a hand needs for Ctrl-C: until the command line looks after signals, one ends the process
    with a word instead of a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from neaptide.cli.main import main
    from neaptide.cli.process.interrupts import has_heard
    from neaptide.interruption import has_left_calls

    try:
        code = main()
    except KeyboardInterrupt:  # another one, while the first was being answered
        code = _INTERRUPTED
    if code == _INTERRUPTED or has_heard() or has_left_calls():
        # Taking a process with torch down takes seconds, and whoever interrupts wants it to end. A solver that was
        # left to itself may run on for as long as it likes, and must not find its memory gone.
        _flush()
        os._exit(code)
    sys.exit(code)


def _flush() -> None:
    """Writes what is printed and not written yet. A result that cannot be written was told, and has its code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by whoever started this
            with suppress(OSError, ValueError):
                stream.flush()


def _end(signum: int, frame: FrameType | None) -> NoReturn:
    del signum, frame
    os.write(2, b"\ninterrupted\n")
    os._exit(_INTERRUPTED)


if __name__ == "__main__":
    run()

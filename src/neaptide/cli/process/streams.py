"""The streams of the process: stdout for results alone, and streams that cannot be written to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


def stand_in_for_closed() -> None:
    """Streams that whoever started the process has closed end nowhere; called before any file is opened."""
    if sys.stdout is None:
        sys.stdout = _nowhere(1)
    if sys.stderr is None:
        # Python's print would turn to stdout instead.
        sys.stderr = _nowhere(2)


@contextmanager
def undisturbed_stdout() -> Iterator[None]:
    """Keeps stdout for what Python prints: notes that libraries print there from C go to stderr.

    One of them in front of a JSON object is one too many.
    """
    before = sys.__stdout__
    # A program without stdout, such as one of pythonw, or one whose Python output goes elsewhere already.
    if before is None or sys.stdout is not before:
        yield
        return
    with suppress(OSError):
        before.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(own, "w", encoding=before.encoding, errors=before.errors) as stream:
        sys.stdout = stream
        try:
            yield
        finally:
            try:
                stream.flush()
            except OSError:  # as after the help text, for a reader that has seen enough
                silence(stream)
            sys.stdout = before
            _flush_c()
            os.dup2(own, 1)


def _nowhere(descriptor: int) -> TextIO:
    """A stream that ends nowhere, for one that whoever started this has closed.

    It takes its number: the next file that is opened would get it, and with it what libraries print from C.
    """
    with suppress(OSError):
        os.fstat(descriptor)
        return Path(os.devnull).open("w", encoding="utf-8")
    opened = os.open(os.devnull, os.O_WRONLY)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    return open(descriptor, "w", encoding="utf-8")


def _flush_c() -> None:
    """Writes what C code has printed and not written yet, which otherwise comes when the process ends."""
    # Whatever prints from C was loaded with numpy, which loads ctypes.
    ctypes = sys.modules.get("ctypes")
    if ctypes is not None:
        with suppress(OSError, TypeError, AttributeError):
            ctypes.CDLL(None).fflush(None)


def silence(stream: TextIO) -> None:
    """Lets a stream that cannot be written to end nowhere: Python writes what is left when the process ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

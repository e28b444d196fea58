"""Numpy arrays that a step can reach are read-only while it is traced: a write is refused where it happens."""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from neaptide.errors import CaptureError
from neaptide.frontends.source.trace_errors import location, users_line


@contextlib.contextmanager
def locked_arrays(arrays: Sequence[Any]) -> Iterator[None]:
    """Lock the arrays, whatever their size, without a copy; nothing is to be put back.

    Raises:
        CaptureError: the step writes one of them.
    """
    locked = [array for array in arrays if array.flags.writeable]
    for array in locked:
        array.flags.writeable = False
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            yield
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise CaptureError(
            "the step writes a numpy array",
            where=location(users_line(traceback.extract_tb(error.__traceback__))),
            why="it would be written once, at capture, and never again when the captured program runs",
            next_step="keep it in a tensor or buffer, or write it outside the step",
        ) from None
    finally:
        for array in sorted(
            locked, key=lambda a: a.base is not None
        ):  # a view may be written when its base may
            array.flags.writeable = True

"""Files that somebody else wrote: read whole and within bounds, decoded, and every failure said in one sentence.

A path may name a folder, a pipe that nobody writes to, or a device without end; a text may be nested deeper than any
parser goes. None of these may hang a process or end it with anything but an error that names the file.
"""

from __future__ import annotations

import codecs
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from neaptide.errors import UnreadableFile

MOST_BYTES: Final = 1 << 30
"""Of one file. The graph of a step with 100,000 operations has about 100 MB."""
_KINDS: Final = (
    (stat.S_ISDIR, "it is a folder"),
    (stat.S_ISFIFO, "it is a pipe, not a file"),
    (stat.S_ISSOCK, "it is a socket, not a file"),
    (stat.S_ISCHR, "it is a device, not a file"),
    (stat.S_ISBLK, "it is a device, not a file"),
)
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SHOWN: Final = 200  # characters of a parser's own words


def is_there(path: str | Path) -> bool:
    """Whether there is something to read at a path; of a name that no file can have, False."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises for a name that is too long or not allowed


def is_file(path: str | Path) -> bool:
    """Whether there is a file, and no folder or device, at a path; of a name that no file can have, False."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises for a name that is too long or not allowed


def place_of(path: str | Path) -> str:
    """The absolute path, for messages; the path itself where the current folder is gone."""
    try:
        return str(Path(path).absolute())
    except (OSError, ValueError):
        return str(path)


@contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    """The descriptor of a file that is open for reading; what is no file is refused."""
    try:
        # A pipe without a writer would block the opening itself.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            mode = os.fstat(handle).st_mode
            for is_kind, why in _KINDS:
                if is_kind(mode):
                    raise _unreadable(path, why)
            yield handle
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:  # a path with a null character is a ValueError
        raise _unreadable(path, _reason(error)) from error


def map_bytes(path: str | Path) -> memoryview:
    """The content of a file that is not read before it is looked at."""
    with _opened(path) as handle:
        if not os.fstat(handle).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))


def read_bytes(path: str | Path) -> bytes:
    """The content of a file, without the byte order mark of UTF-8."""
    with _opened(path) as handle, open(handle, "rb", closefd=False) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _unreadable(path, f"it has more than {MOST_BYTES >> 30} GiB")
    return data.removeprefix(codecs.BOM_UTF8)


def read_text(path: str | Path) -> str:
    """The content of a file of UTF-8 text, without its byte order mark."""
    data = read_bytes(path)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unreadable(path, why_not_utf8(data, error)) from error


def why_not_utf8(data: bytes, error: UnicodeDecodeError) -> str:
    """What is wrong with bytes that are no UTF-8, in words."""
    if data.startswith(_UTF_16):
        return "it is UTF-16; save it as UTF-8"
    return f"it is no UTF-8 text: {error.reason} at byte {error.start}"


def decode_json(data: str | bytes, kind: Any = Any, hook: Callable[[type, Any], Any] | None = None) -> Any:
    """The value of a JSON text, in a type that msgspec knows, or that `hook` makes of plain data."""
    import msgspec

    try:
        return msgspec.json.decode(data, type=kind, dec_hook=hook)
    except msgspec.DecodeError as error:
        if isinstance(data, bytes) and data.startswith(_UTF_16):
            raise JsonError("it is UTF-16; save it as UTF-8") from error
        raise JsonError(str(error)[:_SHOWN]) from error
    except UnicodeDecodeError as error:
        raise JsonError(f"it is no UTF-8 text: {error.reason}") from error
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error


class JsonError(ValueError):
    """Text that is not the JSON that was expected. Whoever reads it knows what the text was meant to be."""


def _unreadable(path: str | Path, why: str) -> UnreadableFile:
    return UnreadableFile(
        f"{str(path)!r} cannot be read", where=place_of(path), why=why, next_step="check the path"
    )


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error)

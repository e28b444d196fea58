"""Measured costs that outlive a process: a file of JSON lines that several processes append to, the last line of a key counts.

A cache never decides whether something works: a file that is lost, damaged or out of reach costs a new measurement
and one warning, and nothing else.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

_LOG = logging.getLogger(__name__)

FILE_NAME: Final = "op_costs-8.jsonl"
"""The number is that of the format: what an older release kept is not read."""


def cache_dir() -> Path:
    """Directory for cached measurements; made when something is written.

    `NEAPTIDE_CACHE_DIR` if set, else `XDG_CACHE_HOME/neaptide`, else `~/.cache/neaptide`.
    """
    own = os.environ.get("NEAPTIDE_CACHE_DIR")
    if own:
        return Path(os.path.expanduser(own))  # noqa: PTH111 - Path.expanduser raises for a user that is not there
    shared = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification has relative paths ignored.
    if shared and Path(shared).is_absolute():
        return Path(shared) / "neaptide"
    return Path(os.path.expanduser("~")) / ".cache" / "neaptide"  # noqa: PTH111 - Path.home raises without a home


class OpCostCache:
    """Costs by a key that names everything a cost depends on; values are JSON objects.

    Where there is no place for a file (a full or read-only disk, no permission, something else of that name), nothing
    more is kept, after one warning.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = cache_dir() / FILE_NAME if path is None else path
        self._values: dict[str, dict[str, Any]] = {}
        self._read_bytes = 0
        self._is_in_reach = True

    def get_many(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The values of those keys that have one, those that other processes have kept meanwhile too."""
        self._read_on()
        return {key: self._values[key] for key in keys if key in self._values}

    def starting_with(self, text: str) -> list[dict[str, Any]]:
        """The values of all keys that begin with a text."""
        self._read_on()
        return [value for key, value in self._values.items() if key.startswith(text)]

    def put_many(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Keeps values under their keys, in place of what was there."""
        if not values or not self._is_in_reach:
            return
        rows = [msgspec.json.encode({"key": key, "value": value}) for key, value in values.items()]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # One write at the end of the file, in lines of its own even after a line that a killed process cut off.
            with os.fdopen(_opened(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "wb") as file:
                file.write(b"\n" + b"\n".join(rows) + b"\n")
        except OSError as error:
            self._give_up(error)

    def _read_on(self) -> None:
        """Reads what was appended since the last time."""
        if not self._is_in_reach:
            return
        try:
            with os.fdopen(_opened(self.path, os.O_RDONLY), "rb") as file:
                file.seek(self._read_bytes)
                # Another process may be writing the last line now.
                text = file.read()
        except FileNotFoundError:
            return
        except OSError as error:
            self._give_up(error)
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        lines = list(filter(None, whole.split(b"\n")))
        found = [row for row in map(_row, lines) if row is not None]
        self._values.update((row.key, row.value) for row in found)
        if len(found) < len(lines):
            damaged = len(lines) - len(found)
            _LOG.warning("%d lines of the cost cache %s are damaged; measuring again", damaged, self.path)

    def _give_up(self, error: OSError) -> None:
        self._is_in_reach = False
        _LOG.warning(
            "measured costs are not kept in %s (%s); NEAPTIDE_CACHE_DIR names another folder",
            self.path,
            error.strerror or error,
        )


class _Row(msgspec.Struct):
    key: str
    value: dict[str, Any]


def _row(line: bytes) -> _Row | None:
    try:
        return msgspec.json.decode(line, type=_Row)
    except (ValueError, RecursionError):
        return None


def _opened(path: Path, flags: int) -> int:
    """The handle of an ordinary file; a pipe or a device, which may never end, is refused."""
    if path.exists() and not path.is_file():
        raise FileExistsError("it is no file")
    return os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)

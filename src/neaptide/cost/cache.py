"""Files that outlive a process: the cache directory, atomic writes, and a store of per-operator costs.

A cache never decides whether something works: a lost or damaged file costs a new measurement and nothing
else. Several processes may use one directory at the same time.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from neaptide.errors import UsageError

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

SCHEMA_VERSION: Final = 1
# SQLite builds of the last decade take 999 bound values per statement; stay below.
_KEYS_PER_QUERY: Final = 500
_BUSY_TIMEOUT_S: Final = 30.0
_BUSY_PAUSE_S: Final = 0.01
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def cache_dir() -> Path:
    """Directory for cached measurements; made when something is written.

    `NEAPTIDE_CACHE_DIR` if set, else `XDG_CACHE_HOME/neaptide`, else `~/.cache/neaptide`.
    """
    own = os.environ.get("NEAPTIDE_CACHE_DIR")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification has relative paths ignored.
    if shared and Path(shared).is_absolute():
        return Path(shared) / "neaptide"
    return Path.home() / ".cache" / "neaptide"


def write_atomic(path: Path, text: str) -> None:
    """Writes a file so that a reader, or a second writer, never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


class OpCostCache:
    """Costs by operator key, kept in one SQLite file that several processes may write at once.

    Keys are strings that name everything a cost depends on; values are JSON objects. A file of another
    schema version is emptied; a damaged one is set aside with a warning and started anew. An instance
    belongs to the thread that made it.

    Args:
        path: the file; by default `op_costs.sqlite3` in `cache_dir()`.

    Raises:
        UsageError: when the place cannot be written at all.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = cache_dir() / "op_costs.sqlite3" if path is None else path
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._open_or_replace()
        except (OSError, sqlite3.OperationalError) as error:
            raise UsageError(
                "the cost cache cannot be opened",
                where=str(self.path),
                why=str(error),
                next_step="set NEAPTIDE_CACHE_DIR to a directory that can be written",
            ) from error

    def get_many(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The stored values of those keys that have one."""
        wanted = list(dict.fromkeys(keys))

        def read(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
            found: dict[str, dict[str, Any]] = {}
            for start in range(0, len(wanted), _KEYS_PER_QUERY):
                chunk = wanted[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(chunk))
                # Only question marks are put into the text; the keys are bound.
                query = f"SELECT key, value FROM op_costs WHERE key IN ({marks})"  # noqa: S608
                found.update((key, json.loads(value)) for key, value in connection.execute(query, chunk))
            return found

        return self._with_repair(read)

    def put_many(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Stores values under their keys in one transaction; a key that is there already is overwritten."""
        rows = [(key, json.dumps(dict(value), sort_keys=True)) for key, value in values.items()]

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO op_costs (key, value) VALUES (?, ?)", rows)

        if rows:
            self._with_repair(write)

    def close(self) -> None:
        """Closes the file; the instance cannot be used afterwards."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _with_repair(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Runs `work`; when it finds the file damaged, once more on a new file."""
        try:
            return work(self._connection)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._connection.close()
            self._set_aside(error)
            self._connection = _open_patiently(self.path)
            return work(self._connection)

    def _open_or_replace(self) -> sqlite3.Connection:
        try:
            return _open_patiently(self.path)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._set_aside(error)
            return _open_patiently(self.path)

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        _LOG.warning("the cost cache %s is damaged (%s); starting a new one", self.path, error)
        # Another process may have found the same damage and moved the file first.
        with suppress(FileNotFoundError):
            self.path.replace(self.path.with_name(self.path.name + ".damaged"))
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)


def _result_code(error: sqlite3.Error) -> int | None:
    """The primary result code; extended ones carry it in their low byte. None if SQLite gave none."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file is broken, as opposed to locked, full or read-only."""
    return _result_code(error) in _DAMAGED


def _open_patiently(path: Path) -> sqlite3.Connection:
    """Opens the file, waiting for other processes.

    SQLite's own busy timeout does not cover the switch to WAL mode: of two processes that open a new file
    together, one is told at once that it is busy.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            return _open(path)
        except sqlite3.OperationalError as error:
            if _result_code(error) not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_PAUSE_S)


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # A lost last transaction after a power cut is a lost measurement, not a broken file, in WAL mode.
        connection.execute("PRAGMA synchronous = NORMAL")
        with connection:
            # Takes the write lock first: two processes that start together then agree on who makes the table.
            connection.execute("BEGIN IMMEDIATE")
            with closing(connection.execute("PRAGMA user_version")) as cursor:
                version = cursor.fetchone()[0]
            if version != SCHEMA_VERSION:
                if version != 0:
                    _LOG.info(
                        "the cost cache %s has schema %d, not %d; emptied", path, version, SCHEMA_VERSION
                    )
                connection.execute("DROP TABLE IF EXISTS op_costs")
                connection.execute(
                    "CREATE TABLE op_costs (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
                )
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION:d}")
    except BaseException:
        connection.close()
        raise
    return connection

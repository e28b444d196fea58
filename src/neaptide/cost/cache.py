"""Files that outlive a process: the cache directory, and a store of per-operator costs.

A cache never decides whether something works: a file that is lost, damaged or out of reach costs a new measurement
and one warning, and nothing else. Several processes may use one directory at the same time.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

SCHEMA_VERSION: Final = 7
# SQLite builds of the last decade take 999 bound values per statement; stay below.
_KEYS_PER_QUERY: Final = 500
_BUSY_TIMEOUT_S: Final = 3.0
"""A transaction takes milliseconds: whoever holds the file for longer hangs, and costs are measured without it."""
_BUSY_PAUSE_S: Final = 0.01
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
# What says that the file itself is at fault, or has other tables; the rest is about its place and the processes beside this one.
_DAMAGE: Final = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_SCHEMA,
}
# SQLite quotes from the schema in its messages; where that is damaged, the driver cannot decode them.
_FAILURES: Final = (sqlite3.Error, UnicodeDecodeError)


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
    """Costs by operator key, kept in one SQLite file that several processes may write at once.

    Keys are strings that name everything a cost depends on; values are JSON objects. A file of another schema version is emptied; a damaged one is set aside with a warning and started anew.
    Where there is no place for a file (a full or read-only disk, no permission, something else of that name), nothing
    is found and nothing is kept, after one warning. An instance belongs to the thread that made it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = cache_dir() / "op_costs.sqlite3" if path is None else path
        self._connection: sqlite3.Connection | None = None
        # Of the file that is open: another process may have set a damaged one aside meanwhile.
        self._identity: tuple[int, int] | None = None
        try:
            self._connection = self._open_or_replace()
        except (OSError, *_FAILURES) as error:
            self._give_up(error)

    def get_many(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The stored values of those keys that have one; a value that was damaged is none."""
        wanted = list(dict.fromkeys(keys))

        def read(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
            found: dict[str, dict[str, Any]] = {}
            for start in range(0, len(wanted), _KEYS_PER_QUERY):
                chunk = wanted[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(chunk))
                # Only question marks are put into the text; the keys are bound.
                query = f"SELECT key, value FROM op_costs WHERE key IN ({marks})"  # noqa: S608
                found.update(_decoded(connection.execute(query, chunk).fetchall(), self.path))
            return found

        return self._with_repair(read) or {}

    def put_many(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        """Stores values under their keys in one transaction; a key that is there already is overwritten."""
        rows = [(key, json.dumps(dict(value), sort_keys=True)) for key, value in values.items()]

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO op_costs (key, value) VALUES (?, ?)", rows)

        if rows:
            self._with_repair(write)

    def close(self) -> None:
        """Closes the file; nothing is found or kept afterwards."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _with_repair(self, work: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Runs `work`; when it finds the file damaged, once more on a new file. None where there is no file."""
        if self._connection is None:
            return None
        try:
            return work(self._connection)
        except sqlite3.ProgrammingError:
            raise  # ours: an instance that is used by another thread, say
        except _FAILURES as error:
            try:
                if not _is_damage(error):
                    raise
                self._connection.close()
                self._set_aside(error)
                self._connection = self._open()
                return work(self._connection)
            except (OSError, *_FAILURES) as final:
                self._give_up(final)
                return None

    def _open_or_replace(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._open()
        except _FAILURES as error:
            if not _is_damage(error):
                raise
            self._set_aside(error)
            return self._open()

    def _open(self) -> sqlite3.Connection:
        if self.path.exists() and not self.path.is_file():
            raise FileExistsError("it is no file")
        connection = _open_patiently(self.path)
        self._identity = _identity(self.path)
        return connection

    def _set_aside(self, error: Exception) -> None:
        _LOG.warning("the cost cache %s is damaged (%s); starting a new one", self.path, error)
        # Another process may have found the same damage and started a new file already.
        if self._identity is not None and self._identity != _identity(self.path):
            return
        with suppress(FileNotFoundError):
            self.path.replace(self.path.with_name(self.path.name + ".damaged"))
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _give_up(self, error: Exception) -> None:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        _LOG.warning(
            "measured costs are not kept in %s (%s); NEAPTIDE_CACHE_DIR names another folder", self.path, why
        )
        with suppress(sqlite3.Error):
            self.close()
        self._connection = None


def _decoded(rows: Iterable[tuple[Any, Any]], path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    damaged = 0
    for key, value in rows:
        # SQLite checks no types, so whatever was written comes back, text as bytes.
        try:
            found[key.decode()] = dict(json.loads(value.decode()))
        except (AttributeError, ValueError, TypeError):
            damaged += 1
    if damaged:
        _LOG.warning("%d entries of the cost cache %s are damaged; measuring again", damaged, path)
    return found


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _result_code(error: sqlite3.Error) -> int | None:
    """The primary result code; extended ones carry it in their low byte. None if SQLite gave none."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _is_damage(error: sqlite3.Error | UnicodeDecodeError) -> bool:
    """Whether the file is at fault (broken, or with other tables), as opposed to locked, full or read-only."""
    if isinstance(error, UnicodeDecodeError):
        return True
    return _result_code(error) in _DAMAGE


def _open_patiently(path: Path) -> sqlite3.Connection:
    """Opens the file, waiting for other processes.

    SQLite's own busy timeout does not cover the switch to WAL mode: of two processes that open a new file
    together, one is told at once that it is busy.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            return _open(path, max(deadline - time.monotonic(), 0.0))
        except sqlite3.OperationalError as error:
            if _result_code(error) not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_PAUSE_S)


def _open(path: Path, timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=timeout_s)
    # Text that is no UTF-8 is damage of one entry; decoding it in the driver would take the whole answer down.
    connection.text_factory = bytes
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
        connection.execute(f"PRAGMA busy_timeout = {1000 * _BUSY_TIMEOUT_S:.0f}")
    except BaseException:
        connection.close()
        raise
    return connection

"""What the machine has no more of: memory, open files, threads. None of it is a bug, and each is told in one sentence."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

from neaptide.errors import UsageError

_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_MEMORY: Final = ("allocate memory", "out of memory", "failed to map segment")
_THREADS: Final = ("can't start new thread", "resource temporarily unavailable")
_NO_FILES: Final = "too many open files"


def exhausted(error: BaseException) -> UsageError | None:
    """The error to tell where the machine has no more of something; None for any other."""
    for cause in _chain(error):
        found = _of_memory(cause) or _of_files(cause) or _of_threads(cause)
        if found is not None:
            return found
    return None


def _of_memory(error: BaseException) -> UsageError | None:
    text = str(error).lower()
    is_meant = isinstance(error, RuntimeError | ImportError) and any(words in text for words in _MEMORY)
    if not (isinstance(error, MemoryError) or is_meant or _number(error) == errno.ENOMEM):
        return None
    return UsageError(
        "this process gets no more memory",
        why="the machine has none left, or a limit is set (ulimit -v, a container)",
        next_step="raise the limit, or give a smaller model or batch; a model on device='meta' takes no memory",
    )


def _of_files(error: BaseException) -> UsageError | None:
    is_import = isinstance(error, ImportError) and _NO_FILES in str(error).lower()
    if not (is_import or _number(error) in _FILES):
        return None
    return UsageError(
        "this process may open no more files",
        why="a limit is set (ulimit -n)",
        next_step="raise it: ulimit -n 1024",
    )


def _of_threads(error: BaseException) -> UsageError | None:
    text = str(error).lower()
    is_meant = isinstance(error, RuntimeError) and any(words in text for words in _THREADS)
    if not (is_meant or _number(error) == errno.EAGAIN):
        return None
    return UsageError(
        "this process may start no more threads or processes",
        why="a limit is set (ulimit -u, ulimit -v, a container)",
        next_step="raise the limit, or set OMP_NUM_THREADS=1",
    )


def _number(error: BaseException) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__

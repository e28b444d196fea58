"""Exit codes, the same for every command; and what the machine has no more of, which is no bug but told in one sentence."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from neaptide.errors import UsageError

DONE: Final = 0
BUG: Final = 1
USAGE: Final = 2
OVER_BUDGET: Final = 3
NOT_SUPPORTED: Final = 4
NOT_VERIFIED: Final = 5
INTERRUPTED: Final = 130

MEANINGS: Final[dict[int, str]] = {
    DONE: "done, and within the budget",
    BUG: "a bug of neaptide; -v shows the traceback",
    USAGE: "a mistake in the command, its target or the configuration",
    OVER_BUDGET: "the budget or the capacity was not reached; the smallest peak is printed, -o still writes the best plan",
    NOT_SUPPORTED: "the program, the plan or the installation is not supported",
    NOT_VERIFIED: "the numbers of the plan differ from eager",
    INTERRUPTED: "interrupted before there was a result",
}


def table() -> str:
    """The codes as lines of text, for `--help`."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())


@dataclass(frozen=True, slots=True)
class _Shortage:
    """How an error tells that the machine has no more of something: by number, by type, or by words of some types."""

    numbers: tuple[int, ...]
    words: tuple[str, ...]
    said_by: tuple[type[BaseException], ...]
    what: str
    why: str
    next_step: str
    kind: type[BaseException] | None = None

    def is_meant(self, error: BaseException) -> bool:
        if self.kind is not None and isinstance(error, self.kind):
            return True
        if isinstance(error, OSError) and error.errno in self.numbers:
            return True
        text = str(error).lower()
        return isinstance(error, self.said_by) and any(words in text for words in self.words)


_SHORTAGES: Final = (
    _Shortage(
        (errno.ENOMEM,),
        ("allocate memory", "out of memory", "failed to map segment"),
        (RuntimeError, ImportError),
        "this process gets no more memory",
        "the machine has none left, or a limit is set (ulimit -v, a container)",
        "raise the limit, or give a smaller model or batch; a model on device='meta' takes no memory",
        MemoryError,
    ),
    _Shortage(
        (errno.EMFILE, errno.ENFILE),
        ("too many open files",),
        (ImportError,),
        "this process may open no more files",
        "a limit is set (ulimit -n)",
        "raise it: ulimit -n 1024",
    ),
    _Shortage(
        (errno.EAGAIN,),
        ("can't start new thread", "resource temporarily unavailable"),
        (RuntimeError,),
        "this process may start no more threads or processes",
        "a limit is set (ulimit -u, ulimit -v, a container)",
        "raise the limit, or set OMP_NUM_THREADS=1",
    ),
)


def exhausted(error: BaseException) -> UsageError | None:
    """The error to tell where the machine has no more memory, open files or threads; None for any other."""
    for cause in _chain(error):
        for one in _SHORTAGES:
            if one.is_meant(cause):
                return UsageError(one.what, why=one.why, next_step=one.next_step)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__

"""Parts of a search that can be ended from outside although they do not listen, in Python and in C.

Whoever answers signals says so with `cutting`; without that, and in other threads than the main one, everything here
calls what it is given. A signal handler may raise `Cut` while `is_in_part`: the part is given up, and what was found
before it stays. While it `is_kept`, an answer is being made from what was found: that is waited for. A solver in C
comes back when it likes, and Python cannot raise anything in it: `beside` runs it in a thread of its own, which is left
alone once the search is asked to end. A process that has left such a call must end by `os._exit`: see
`has_left_calls`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Final, TypeVar

T = TypeVar("T")

_POLL_S: Final = 0.02  # how late a call beside sees that the search is asked to end


class Cut(BaseException):
    """A part of a search is ended from outside. No `Exception`: only a `Part` takes it."""


class _Cutting:
    """What is known of the search that may be cut once it is asked to end."""

    def __init__(self, asked: threading.Event) -> None:
        self.asked = asked
        self.parts = 0
        self.kept = 0
        self.beyond = 0


_cutting: _Cutting | None = None
_thread: ThreadPoolExecutor | None = None
"""One for all calls: solvers keep threads for each thread that calls them."""
_left_calls = 0


@contextmanager
def cutting(asked: threading.Event) -> Iterator[None]:
    """Parts of the searches of the main thread may be cut meanwhile, once `asked` is set."""
    global _cutting  # noqa: PLW0603 - as global as the signals of the process
    outer, _cutting = _cutting, _Cutting(asked)
    try:
        yield
    finally:
        _cutting = outer


def is_in_part() -> bool:
    """Whether a `Cut` raised now, in the main thread, is taken by a part."""
    return _cutting is not None and _cutting.parts > 0


def is_kept() -> bool:
    """Whether there is an answer at hand, and what goes on ends by itself."""
    return _cutting is not None and _cutting.kept > 0


def has_left_calls() -> bool:
    """Whether a call in C was left to itself: the process must not be taken down below it."""
    return _left_calls > 0


class Part:
    """A part of a search, which ends here when it is cut: what comes after it does without."""

    def __enter__(self) -> None:
        self._found = _of_main_thread()
        if self._found is not None:
            self._found.parts += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if self._found is None:
            return False
        self._found.parts -= 1
        return kind is not None and issubclass(kind, Cut)


@contextmanager
def _during(counter: str) -> Iterator[None]:
    found = _of_main_thread()
    if found is None:
        yield
        return
    setattr(found, counter, getattr(found, counter) + 1)
    try:
        yield
    finally:
        setattr(found, counter, getattr(found, counter) - 1)


def keeping() -> AbstractContextManager[None]:
    """There is an answer at hand meanwhile, and everything that may be long is a `Part` or listens."""
    return _during("kept")


def beyond_search() -> AbstractContextManager[None]:
    """The search is over meanwhile: what goes on has no answer to give when it is asked to end."""
    return _during("beyond")


def is_beyond_search() -> bool:
    """Whether the search is over, and what goes on has no answer to give when it is asked to end."""
    return _cutting is not None and _cutting.beyond > 0


def beside(work: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """The result of a call that may be long in C, or what there is without it when the search is asked to end."""
    global _thread, _left_calls  # noqa: PLW0603 - as global as the thread
    found = _of_main_thread()
    if found is None:
        return work()
    _thread = _thread or ThreadPoolExecutor(1)
    call = _thread.submit(work)
    try:
        while not wait([call], _POLL_S).done:
            if found.asked.is_set():
                break
    finally:
        is_left = not call.done()
        if is_left:
            _thread = None
            _left_calls += 1
    return otherwise() if is_left else call.result()


def _of_main_thread() -> _Cutting | None:
    return _cutting if threading.current_thread() is threading.main_thread() else None

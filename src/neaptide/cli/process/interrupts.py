"""One rule for Ctrl-C and SIGTERM in every command: the first ends what it is doing, the second ends it at once.

Where a search is under way, the first one asks it for the best answer so far, and the command finishes with that. In
every other place there is nothing to keep, and the first one ends the command. A thread watches from outside: parts of
a search that do not listen in time are cut (`neaptide.interruption`), and the answer is made from what the others have
found. Where that does not help, as in a call into C that does not come back, the thread ends the process.
"""

from __future__ import annotations

import _thread
import gc
import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

from neaptide.cli.process import exit_codes
from neaptide.interruption import Cut, cutting, is_beyond_search, is_in_part, is_kept

_STDERR: Final = 2
_HINT: Final = b"\nfinishing with the best found so far; press Ctrl-C again to end at once\n"
_ENDED: Final = b"\ninterrupted\n"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# For a search to hear the question, and for what it is cut down to, to end; for Python to leave what it is doing.
_HEARING_S: Final = 0.7
_LEAVING_S: Final = 0.3


class Interrupt(threading.Event):
    """Asks a search to end; knows whether a search has looked at it, so that there is something to ask for, and heard it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_looked_at = False
        self.is_heard = False

    def is_set(self) -> bool:
        """Whether the search should end."""
        found = super().is_set()
        self.is_looked_at = True
        if found:
            self.is_heard = True
        return found


class Interrupts:
    """What signals do while a command runs; `were_raised`: one of them ended what was being done."""

    def __init__(self) -> None:
        self.were_raised = False
        self._asked: Interrupt | None = None
        self._may_ask: Interrupt | None = None
        self._is_insisting = False
        self._has_answer = False

    @contextmanager
    def asking(self) -> Iterator[Interrupt]:
        """An event that the first signal sets, once a search has looked at it."""
        interrupt = Interrupt()
        self._may_ask = interrupt
        try:
            with cutting(interrupt):
                yield interrupt
            self._has_answer = self._asked is not None
        finally:
            self._may_ask = None

    @property
    def is_finishing(self) -> bool:
        """A search was asked for its best answer, and has heard it, or was cut, or makes its answer anyway."""
        return self._asked is not None and (self._asked.is_heard or self._has_answer or is_kept())

    def insist(self) -> None:
        """Ends what the search does now, or what is being done where there is no search; from another thread.

        Does nothing to a search that is finishing, outside of its parts.
        """
        self._is_insisting = True
        _thread.interrupt_main()

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Asks the search, or ends what is being done."""
        global _has_heard  # noqa: PLW0603 - as global as the handlers of the process
        del signum, frame
        _has_heard = True
        if self._is_insisting:
            self._is_insisting = False
            if self._asked is not None and is_in_part():
                self._has_answer = True
                raise Cut
            if self.is_finishing:
                return
        interrupt = None if is_beyond_search() else self._may_ask
        if interrupt is None or not interrupt.is_looked_at or self._asked is not None:
            self.were_raised = True
            raise KeyboardInterrupt
        self._asked = interrupt
        interrupt.set()
        # One full collection with torch loaded takes 0.4 seconds: a fourth of what is still to be done.
        gc.disable()
        _say(_HINT)


_running: Interrupts | None = None
_has_heard = False


def has_heard() -> bool:
    """Whether a command of this process was asked to end."""
    return _has_heard


@contextmanager
def asking_before_aborting() -> Iterator[threading.Event]:
    """The event of the command that runs; see `Interrupts.asking`. Outside of one it is never set."""
    if _running is None:
        yield threading.Event()
        return
    with _running.asking() as interrupt:
        yield interrupt


@contextmanager
def handled() -> Iterator[Interrupts]:
    """Signals do what this module says; afterwards what they did before.

    A signal that is ignored stays so, as in a job in the background. Outside the main thread, where no signal arrives,
    nothing is changed.
    """
    global _running  # noqa: PLW0603 - as global as the handlers of the process
    interrupts = Interrupts()
    before: dict[int, Any] = {}
    outer = _running
    collects = gc.isenabled()
    if threading.current_thread() is threading.main_thread():
        # None is a handler that was not set from Python, and cannot be put back from here.
        found = {signum: signal.getsignal(signum) for signum in _SIGNALS}
        before = {s: h for s, h in found.items() if h is not None and h != signal.SIG_IGN}
        _running = interrupts
        for signum in before:
            signal.signal(signum, interrupts.handle)
    try:
        yield interrupts
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        _running = outer
        if collects:
            gc.enable()


@contextmanager
def watched(interrupts: Interrupts) -> Iterator[None]:
    """A thread ends the process where Python cannot, as in a solver that does not come back.

    For programs of their own alone: it ends the whole process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ears, mouth = os.pipe()
    os.set_blocking(mouth, False)
    before = signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
    # A child hears the same Ctrl-C: it must not be counted here as a second one.
    os.register_at_fork(after_in_child=_leave_to_parent)
    threading.Thread(target=_watch, args=(ears, interrupts), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(mouth)


def _leave_to_parent() -> None:
    if threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)


def _watch(ears: int, interrupts: Interrupts) -> None:
    count = 0
    while True:
        numbers = os.read(ears, 1)
        if not numbers:
            os.close(ears)
            return
        # The user's program may have a handler of its own by now.
        if signal.getsignal(numbers[0]) != interrupts.handle:
            continue
        count += 1
        if count == 1:
            _insist(ears, interrupts)
        elif not _hears_more(ears, _LEAVING_S):
            _end()


def _insist(ears: int, interrupts: Interrupts) -> None:
    """Until another signal comes or the command ends, again and again ends what does not end by itself."""
    while not _hears_more(ears, _HEARING_S):
        if not interrupts.were_raised:
            interrupts.insist()
            if _hears_more(ears, 0.0):
                os.read(ears, 1)  # what it has written there itself
        if not _hears_more(ears, _LEAVING_S) and not interrupts.is_finishing:
            _end()


def _hears_more(ears: int, seconds: float) -> bool:
    """Whether another signal comes, or the command ends, within some seconds."""
    return bool(select.select([ears], [], [], seconds)[0])


def _end() -> None:
    _say(_ENDED)
    os._exit(exit_codes.INTERRUPTED)


def _say(words: bytes) -> None:
    # Not through sys.stderr: a handler may run in the middle of a write to it.
    with suppress(OSError):
        os.write(_STDERR, words)

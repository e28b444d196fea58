"""A thread that makes copies one after the other, from a queue with a bound."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

from neaptide.errors import TransferError
from neaptide.movers.slow_memory import MOST_WAITING

Pieces: TypeAlias = Iterator[float]
"""A copy under way: makes a piece, then gives the seconds to pause before the next one."""


class CopyJob:
    """One copy, made by a thread.

    Args:
        pieces: the copy. What it refers to is let go of when it ends.
        what: the copy in words, for messages.
    """

    def __init__(self, pieces: Pieces, what: str) -> None:
        self._pieces: Pieces | None = pieces
        self._what = what
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._phase = threading.Lock()
        self._has_begun = self._is_over = False
        self._then: list[Callable[[], None]] = []
        self._error: BaseException | None = None
        self._process = os.getpid()

    def wait(self) -> None:
        """Block until the copy has ended.

        Raises:
            TransferError: it failed.
        """
        self._ended.wait()
        if self._error is not None:
            error = self._error
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise TransferError(
                f"{self._what} failed",
                why=why,
                next_step="see to the disk that storages wait on, or choose another folder; then run the step again",
            ) from error

    def abandon(self, then: Callable[[], None]) -> None:
        """Stop behind the piece that is being copied, and wait for that; a copy that has not begun never begins."""
        self._stop.set()
        with self._phase:
            is_running = self._has_begun and not self._is_over
            if is_running:
                self._then.append(then)
            else:
                self._is_over, self._pieces = True, None
        if not is_running:
            self._ended.set()
            then()
        elif self._process == os.getpid():  # a fork has no thread that would end it
            self._ended.wait()

    def run(self) -> None:
        """Make the copy; called by the thread."""
        with self._phase:
            pieces, self._has_begun = self._pieces, True
        if pieces is None:
            return
        try:
            while not self._stop.is_set():
                pause_s = next(pieces, None)
                if pause_s is None:
                    break
                if pause_s > 0:
                    self._stop.wait(pause_s)
        except BaseException as error:  # noqa: BLE001 - raised where the copy is waited for
            self._error = error.with_traceback(None)  # whose frames hold the storage
        finally:
            pieces = self._pieces = None
            with self._phase:
                self._is_over = True
            for then in self._then:
                then()
            self._ended.set()


class CopyThread:
    """Makes jobs in the order in which they come. It starts with the first one, and ends with `close`.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.Queue[CopyJob | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def put(self, job: CopyJob) -> CopyJob:
        """Queue a job; blocks while the queue is full."""
        if self._thread is None:
            # It refers to the queue alone, so that whoever owns this object may die.
            self._thread = threading.Thread(
                target=_work, args=(self._jobs,), name=f"neaptide-{self._name}", daemon=True
            )
            self._thread.start()
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """End the thread behind the jobs that it has."""
        if self._thread is not None and self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()


def _work(jobs: queue.Queue[CopyJob | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # or it would live until the next one comes

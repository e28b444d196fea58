"""A thread that makes copies one after the other, from a queue with a bound."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Final, TypeAlias

from neaptide.errors import TransferError
from neaptide.units import format_bytes

MOST_WAITING: Final = 64
"""Copies that may wait for their turn in one direction. A job is a few hundred bytes; the bound keeps a fault from
hiding behind a queue that grows."""

Pieces: TypeAlias = Iterator[float]
"""A copy under way: makes a piece, then gives the seconds to pause before the next one."""


class CopyJob:
    """One copy, made by a thread. What its pieces refer to is let go of when it ends."""

    def __init__(self, pieces: Pieces, does: str, nbytes: int) -> None:
        self._pieces: Pieces | None = pieces
        self._what = does, nbytes
        self._stop = threading.Event()
        # A lock that is held until the copy has ended: it costs a fifth of what an event does.
        self._not_ended = threading.Lock()
        self._not_ended.acquire()
        self._phase = threading.Lock()
        self._has_begun = self._is_over = False
        self._then: list[Callable[[], None]] = []
        self._error: BaseException | None = None
        self._process = os.getpid()

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to be waited for."""
        return not self._not_ended.locked()

    def until_ended(self) -> None:
        """Block until the copy has ended, well or not."""
        with self._not_ended:
            pass

    def wait(self) -> None:
        """Block until the copy has ended."""
        self.until_ended()
        if self._error is not None:
            error = self._error
            does, nbytes = self._what
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise TransferError(
                f"{does} {format_bytes(nbytes)} failed",
                why=why,
                next_step="see to the disk that storages wait on, or choose another folder; then run the step again",
            ) from error

    def abandon(self, then: Callable[[], None]) -> None:
        """Stop after the piece that is being copied, and wait for that; a copy that has not begun never begins."""
        self._stop.set()
        with self._phase:
            is_running = self._has_begun and not self._is_over
            if is_running:
                self._then.append(then)
            elif not self._is_over:
                self._is_over, self._pieces = True, None
                self._not_ended.release()
        if not is_running:
            then()
        elif self._process == os.getpid():  # a fork has no thread that would end it
            self.until_ended()

    def run(self) -> None:
        """Make the copy; called by the thread."""
        with self._phase:
            if self._is_over:
                return
            pieces, self._has_begun = self._pieces, True
        assert pieces is not None
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
            self._not_ended.release()


class CopyThread:
    """Makes jobs in the order in which they come. It starts with the first one, and ends with `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[CopyJob | None] = SimpleQueue()
        self._given: deque[CopyJob] = deque()
        self._thread: threading.Thread | None = None

    def put(self, job: CopyJob) -> CopyJob:
        """Queue a job; blocks while as many as may wait have not ended."""
        if self._thread is None:
            # It refers to the queue alone, so that whoever owns this object may die.
            self._thread = threading.Thread(
                target=_work, args=(self._jobs,), name=f"neaptide-{self._name}", daemon=True
            )
            self._thread.start()
        while self._given and self._given[0].has_ended:
            self._given.popleft()
        if len(self._given) >= MOST_WAITING:
            self._given.popleft().until_ended()
        self._given.append(job)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """End the thread after the job that it is at; those that wait never begin."""
        for job in reversed(self._given):  # the last first, or the next would begin when one ends
            job.abandon(_nothing)
        if self._thread is not None and self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()


def _nothing() -> None:
    pass


def _work(jobs: SimpleQueue[CopyJob | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # or it would live until the next one comes

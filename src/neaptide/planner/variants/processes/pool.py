"""Worker processes that plan variants side by side, and what becomes of a variant whose worker dies."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from typing import Final

from neaptide.cost.host import usable_cores
from neaptide.ops import registry
from neaptide.outcome import Stopwatch
from neaptide.planner.failed_stages import FailedStageWarning
from neaptide.planner.plan_graph import GraphPlan
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.processes.messages import READY, Planned, packed, read, unpacked, write
from neaptide.planner.variants.processes.task import PricedTask

logger = logging.getLogger(__name__)

_WORKER: Final = "neaptide.planner.variants.processes.worker"
_POLL_S: Final = 0.02  # how late the pool sees that the search is asked to end
_HEARING_S: Final = 0.6  # for workers to answer with the best so far; a command ends within two seconds
_ENDING_S: Final = 1.0  # for a process that has closed its pipes to end
_STDERR_CHARS: Final = 500
# A worker takes a second to start: where planning takes less, it is done before.
_WORTHWHILE_S: Final = 1.0


class Lost:
    """In place of a plan: no worker could make it."""


_Event = tuple["_Worker", bytes | None]


class _Worker:
    """A process, and a thread that writes to it and reads from it."""

    def __init__(self, events: queue.SimpleQueue[_Event]) -> None:
        self.is_ready = False
        self.task: int | None = None
        self._events = events
        self._blocks: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this object does
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for us; we end it
        )
        threading.Thread(target=self._talk, daemon=True).start()

    def begin(self, number: int, block: bytes) -> None:
        """Let the worker plan something."""
        self.task = number
        self._blocks.put(block)

    def ask_to_end(self) -> None:
        """Ask for the best so far; what is not planning yet has none."""
        if self.is_ready:
            self.process.send_signal(signal.SIGINT)
        else:
            self.process.kill()

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        self._blocks.put(None)
        self._errors.close()

    def last_words(self) -> str:
        """What a process that has ended wrote to stderr, or how it ended."""
        try:
            code = self.process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            return "it speaks no more"
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace").strip()[-_STDERR_CHARS:]
        return text or f"exit code {code}"

    def _talk(self) -> None:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        # A pipe that nobody reads is told of as the end of the worker.
        with contextlib.suppress(OSError), stdin, stdout:
            answer = read(stdout)
            while answer is not None:
                self._events.put((self, answer))
                block = self._blocks.get()
                if block is None:
                    return
                write(stdin, block)
                answer = read(stdout)
        self._events.put((self, None))


class WorkerPool:
    """Some workers, started at once and used for one batch of tasks after another. Whoever makes one calls `close`.

    Args:
        count: of processes.
        interrupt: once it is set, workers are asked for the best so far, and soon ended.
    """

    def __init__(self, count: int, interrupt: threading.Event | None = None) -> None:
        self._interrupt = interrupt
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._workers = [_Worker(self._events) for _ in range(count)]

    def plans(
        self, count: int, task: Callable[[int], PricedTask], may_begin: Callable[[int], bool]
    ) -> list[GraphPlan | Lost | None]:
        """The plans of some tasks, begun in their order.

        Args:
            count: of tasks.
            task: one of them, by its number; made when a worker has time for it.
            may_begin: asked in front of each task, by its number, whether it is still worth a plan.

        Returns:
            By task its plan; None where it was not begun, or ended without one when the search was asked to end;
            `Lost` where its worker died, or failed.
        """
        found: list[GraphPlan | Lost | None] = [None] * count
        waiting = list(range(count))
        asked_at: Stopwatch | None = None
        while True:
            if asked_at is None:
                self._hand_out(task, waiting, may_begin)
            if not any(worker.task is not None for worker in self._workers):
                break
            if asked_at is None and self._interrupt is not None and self._interrupt.is_set():
                asked_at = Stopwatch()
                for worker in self._workers:
                    worker.ask_to_end()
            if asked_at is not None and asked_at.seconds() > _HEARING_S:
                self.close()
                return found
            self._take_in(found, is_ending=asked_at is not None)
        if asked_at is None:
            for number in waiting:  # no worker is left
                found[number] = Lost()
        return found

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    def _hand_out(
        self, task: Callable[[int], PricedTask], waiting: list[int], may_begin: Callable[[int], bool]
    ) -> None:
        for worker in self._workers:
            while worker.task is None and waiting:
                number = waiting.pop(0)
                if may_begin(number):
                    worker.begin(number, packed(task(number)))

    def _take_in(self, found: list[GraphPlan | Lost | None], *, is_ending: bool) -> None:
        """Wait a little for one worker to say something."""
        try:
            worker, block = self._events.get(timeout=_POLL_S)
        except queue.Empty:
            return
        if block == READY:
            worker.is_ready = True
            return
        number, worker.task = worker.task, None
        if block is None:
            self._workers.remove(worker)
            if not is_ending:
                _tell(
                    f"a process that plans variants died ({worker.last_words()}), and its variant is planned here"
                )
            worker.close()
        if number is None:
            return
        answer = Planned(None, failure="") if block is None else unpacked(block)
        for text in answer.told:
            warnings.warn(text, FailedStageWarning, stacklevel=2)
        if answer.failure:
            logger.debug("a variant could not be planned in a process of its own: %s", answer.failure)
        found[number] = answer.plan or (None if is_ending else Lost())


def started_pool(
    wanted: int | None,
    most: int,
    pricing: Pricing,
    plain_seconds: float,
    interrupt: threading.Event | None = None,
) -> WorkerPool | None:
    """Workers for a search; None where everything is planned in its own process.

    Args:
        wanted: how many; 1 for none beside the search. None: as many as there are cores, where that saves time.
        most: tasks that are there at once.
        pricing: of the graphs. Processes know the operations of `ops.registry` alone.
        plain_seconds: that the plan of the graph as it is took.
        interrupt: of the search.
    """
    known = registry().with_bits(may_vary=pricing.registry.bits_may_vary)
    count = min(usable_cores() if wanted is None else wanted, most)
    is_worthwhile = wanted is not None or plain_seconds >= _WORTHWHILE_S
    if count < 2 or not is_worthwhile or pricing.registry is not known:
        return None
    return WorkerPool(count, interrupt)


def _tell(text: str) -> None:
    warnings.warn(text, FailedStageWarning, stacklevel=2)

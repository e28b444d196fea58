"""Worker processes that plan variants side by side, and what becomes of a variant whose worker dies."""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Final

from neaptide.ask import OneShape, Place
from neaptide.cost.host import usable_cores
from neaptide.cost.model import KnownCost
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ops import registry
from neaptide.ops.declared import declared_rows
from neaptide.outcome import Stopwatch
from neaptide.planner.bodies.plans import BodyPlanner
from neaptide.planner.failed_stages import FailedStageWarning
from neaptide.planner.graphs.plan_graph import GraphAsk, GraphPlan
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.processes.messages import Child, Planned, packed, unpacked
from neaptide.schedule.timeline import Links

logger = logging.getLogger(__name__)

_WORKER: Final = "neaptide.planner.variants.processes.worker"
_POLL_S: Final = 0.02  # how late the pool sees that the search is asked to end
_HEARING_S: Final = 0.6  # for workers to answer with the best so far; a command ends within two seconds
# A worker takes a second to start: where planning takes less, it is done before.
_WORTHWHILE_S: Final = 1.0


@dataclass(frozen=True)
class PricedTask:
    """A variant that is to be planned in another process, and what it costs.

    `declared` are operations that the user vouches for, each with whether it is deterministic.
    """

    graph: Graph
    asked: GraphAsk
    cost: KnownCost
    bits_may_vary: bool
    links: Links | None = None
    declared: tuple[tuple[str, bool], ...] = ()

    @staticmethod
    def of(graph: Graph, asked: GraphAsk, pricing: Pricing) -> PricedTask:
        """A task, priced. O(nodes)."""
        cost = KnownCost.of(pricing.cost, graph, pricing.binding)
        declared = tuple((row.name, row.deterministic) for row in declared_rows())
        asked = replace(asked, interrupt=None, leave_out=None, rewrites=(), mode=OneShape(), place=Place())
        return PricedTask(graph, asked, cost, pricing.registry.bits_may_vary, pricing.links, declared)

    def planned(self, registry: OpRegistry, interrupt: threading.Event | None = None) -> GraphPlan:
        """The plan: the same, under a limit of work, as that of the variant by the pricing that the task was made of."""
        pricing = Pricing(
            self.cost,
            registry.with_bits(may_vary=self.bits_may_vary),
            binding=self.cost.binding,
            links=self.links,
        )
        return BodyPlanner(pricing, self.asked.limits, interrupt).around(self.graph, self.asked)


class Lost:
    """In place of a plan: no worker could make it."""


class _Worker(Child):
    """A process that plans one task after another."""

    def __init__(self) -> None:
        super().__init__(_WORKER)

    def planned(self, block: bytes) -> Planned | None:
        """The answer to a task; None where the process is gone."""
        with contextlib.suppress(OSError, ValueError):  # a pipe that is closed tells the end of the worker
            self.tell(block)
            answer = self.heard()
            if answer is not None:
                made: Planned = unpacked(answer)
                return made
        return None

    def ask_to_end(self) -> None:
        """Ask for the best so far; what has not loaded everything yet has none, and ends."""
        self.process.send_signal(signal.SIGINT)


class WorkerPool:
    """Some workers, started at once and used for one batch of tasks after another. Whoever makes one calls `close`.

    Once `interrupt` is set, they are asked for the best so far, and soon ended.
    """

    def __init__(self, count: int, interrupt: threading.Event | None = None) -> None:
        self._interrupt = interrupt or threading.Event()
        self._workers = [_Worker() for _ in range(count)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(count)

    def plans(
        self, tasks: Sequence[PricedTask], may_begin: Callable[[int], bool]
    ) -> list[GraphPlan | Lost | None]:
        """By task its plan; None where it was not begun, or ended without one when the search was asked to end; `Lost` where its
        worker died, or failed. `may_begin` is asked in any thread, by the number of a task, whether it is still worth a plan.
        """
        asked_at: Stopwatch | None = None
        waiting: list[Future[Planned | str | None]] = [
            self._threads.submit(self._planned, number, packed(task), may_begin)
            for number, task in enumerate(tasks)
        ]
        while wait(waiting, _POLL_S).not_done:
            if asked_at is None and self._interrupt.is_set():
                asked_at = Stopwatch()
                for worker in self._workers:
                    worker.ask_to_end()
            if asked_at is not None and asked_at.seconds() > _HEARING_S:
                self.close()
                break
        return [self._answer(one.result() if one.done() and not one.cancelled() else None) for one in waiting]

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()
        self._threads.shutdown(cancel_futures=True)

    def _planned(self, number: int, block: bytes, may_begin: Callable[[int], bool]) -> Planned | str | None:
        """What a worker makes of a task; its last words where it died; None where the task was not begun."""
        worker = self._idle.get()
        try:
            if self._interrupt.is_set() or not may_begin(number):
                return None
            made = worker.planned(block)
            return (
                " ".join(worker.last_words()).strip()
                if made is None and not self._interrupt.is_set()
                else made
            )
        finally:
            self._idle.put(worker)

    def _answer(self, made: Planned | str | None) -> GraphPlan | Lost | None:
        if made is None:
            return None
        if isinstance(made, str):
            _tell(f"a process that plans variants died ({made}), and its variant is planned here")
            return Lost()
        for text in made.told:
            _tell(text)
        if made.failure:
            logger.debug("a variant could not be planned in a process of its own: %s", made.failure)
        return made.plan or (None if self._interrupt.is_set() else Lost())


def started_pool(
    wanted: int | None,
    most: int,
    pricing: Pricing,
    plain_seconds: float,
    interrupt: threading.Event | None = None,
) -> WorkerPool | None:
    """Workers for a search, for at most so many tasks at once; None where everything is planned in its own process.

    Without a number that is `wanted` there are as many as cores, where the plan of the graph as it is took so long that it
    saves time. Processes know the operations of `ops.registry` alone.
    """
    known = registry().with_bits(may_vary=pricing.registry.bits_may_vary)
    count = min(usable_cores() if wanted is None else wanted, most)
    is_worthwhile = wanted is not None or plain_seconds >= _WORTHWHILE_S
    if count < 2 or not is_worthwhile or pricing.registry is not known:
        return None
    return WorkerPool(count, interrupt)


def _tell(text: str) -> None:
    warnings.warn(text, FailedStageWarning, stacklevel=2)

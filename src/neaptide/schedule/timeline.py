"""Seconds of schedules with transfers, and of orders with offloaded intervals: `copy_streams` plays both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np

from neaptide.cost.devices import DISK_BYTES_PER_S, Device, Link
from neaptide.errors import UsageError
from neaptide.ir.schedule import BETWEEN, Schedule, StepKind
from neaptide.linear.arrays import Floats
from neaptide.schedule.copy_streams import Event, Key, LoopCopies, Timeline, play
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem

Places: TypeAlias = tuple[int, int, int, int]
"""Positions of the store, of the wait after it, of the load, and of the wait for that, as in `Offload`; `BETWEEN` for
those that there are not."""

_STORE, _GONE, _LOAD, _BACK, _LOOP = range(5)
"""Events between two operations, in the order of `Schedule.with_stays`; a loop is played before what follows it."""


class Links(NamedTuple):
    """The copy engines of a device from its main memory to where storages wait, and back.

    They wait on the host; those of a CPU wait in a file, whose copies are held to a rate.
    """

    out: Link
    back: Link

    @staticmethod
    def of(device: Device) -> Links | None:
        """None where the device has none."""
        name, slow = device.main_space.name, device.slow_space
        if device.kind == "cpu" and device.link(name, slow) is None:
            device = device.with_disk(DISK_BYTES_PER_S)
        out, back = device.link(name, slow), device.link(slow, name)
        return None if out is None or back is None else Links(out, back)


def copy_links(device: Device) -> Links:
    """What `Links.of` gives.

    Raises:
        UsageError: the device has none.
    """
    found = Links.of(device)
    if found is None:
        name, slow = device.main_space.name, device.slow_space
        raise UsageError(
            f"nothing can be stored on the host with device {device.name!r}",
            why=f"it has no link from {name!r} to {slow!r} and back",
            next_step="take a device with links, or add them to its file",
        )
    return found


def simulate_timeline(step: StepProblem, schedule: Schedule, out: Link, back: Link) -> Timeline:
    """Play a legal schedule; keys are storages and occurrences. O(steps)."""
    links = {StepKind.STORE: out, StepKind.LOAD: back}
    events: list[Event] = []
    at = 0.0
    for one in schedule.steps:
        key = one.target, one.occurrence
        if one.runs_node:
            if one.target in step.body_copies:
                events.append((at, one.kind, key, step.body_copies[one.target]))
            at += (step.repeat_seconds if one.occurrence else step.seconds)[one.target]
        elif one.kind in links:
            events.append((at, one.kind, key, links[one.kind].seconds(step.moved_bytes(one.target))))
        elif one.kind is StepKind.WAIT:
            events.append((at, one.kind, key, 0.0))
    return play(events, at)


class OffloadClock:
    """Plays offloaded intervals beside the operations of one order: what a search asks many times.

    Attributes:
        begins_s: by position, when its operation begins if nothing waits; one more entry for the end. `begins` as an array.
        loops: by position, the copies of the loop there; only where there are any.
    """

    def __init__(
        self,
        seconds: Sequence[float] | Floats,
        out: Link,
        back: Link,
        loops: Mapping[int, LoopCopies] = MappingProxyType({}),
    ) -> None:
        """O(positions)."""
        self.loops = loops
        self.begins: Floats = np.concatenate(([0.0], np.cumsum(np.asarray(seconds, dtype=np.float64))))
        self.begins_s: list[float] = self.begins.tolist()
        self.out, self.back = out, back

    @staticmethod
    def of(evaluator: Evaluator, out: Link, back: Link) -> OffloadClock:
        """The clock of a sequence. O(positions)."""
        problem = evaluator.problem
        # Execution ids from the node count on are repetitions.
        again = (problem.repeat_seconds[node] for node in evaluator.node_of[problem.node_count :])
        seconds = np.array([*problem.seconds, *again], dtype=np.float64)[evaluator.order]
        loops = {
            evaluator.places[execution]: copies
            for node, copies in problem.body_copies.items()
            for execution in evaluator.executions[node]
        }
        return OffloadClock(seconds, out, back, loops)

    def play(self, places: Sequence[Places], nbytes: Sequence[int]) -> Timeline:
        """Play intervals; keys are their numbers, and 1 for the copy back. O(log of what is played for each).

        Those that begin at one position are stored in the order in which they are given.
        """
        begins, events = self.begins_s, []

        def add(at: int, rank: int, turn: int, kind: StepKind, key: Key, what: float | LoopCopies) -> None:
            events.append((at, rank, turn, (begins[at], kind, key, what)))

        for position, copies in self.loops.items():
            add(position, _LOOP, 0, StepKind.LOOP, (position, 0), copies)
        for number, ((store, gone, load, back), size) in enumerate(zip(places, nbytes, strict=True)):
            if store != BETWEEN:
                add(store + 1, _STORE, number, StepKind.STORE, (number, 0), self.out.seconds(size))
                add(gone + 1, _GONE, number, StepKind.WAIT, (number, 0), 0.0)
            if load != BETWEEN:
                add(
                    load,
                    _LOAD,
                    back * len(places) + number,
                    StepKind.LOAD,
                    (number, 1),
                    self.back.seconds(size),
                )
                add(back, _BACK, number, StepKind.WAIT, (number, 1), 0.0)
        return play((event for *_, event in sorted(events)), begins[-1])

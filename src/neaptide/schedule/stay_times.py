"""Seconds of an order with stays on the host, without the steps of a schedule: what a search asks many times.

The same two copy engines as in `schedule.timeline`, which plays the steps and is the judge. Here operations between two
copies are one sum, so that a play costs what the stays cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.cost.devices import Link
from neaptide.ir.schedule import BETWEEN
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.loop_copies import Busy, LoopCopies

Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = tuple[int, int, int, int]
"""Positions of the store, of the wait behind it, of the load, and of the wait for that, as in `HostStay`; `BETWEEN` for
those that there are not."""

_STORE, _GONE, _LOAD, _BACK, _LOOP = range(5)
"""Steps between two operations, in the order of `Schedule.with_stays`; a loop is played in front of what follows it."""


class Waiting(NamedTuple):
    """The compute stream waits for a copy.

    Attributes:
        position: before whose operation; the number of positions for the end.
        stay: whose copy, by number.
        is_load: whether it is the copy back.
    """

    position: int
    seconds: float
    stay: int
    is_load: bool


@dataclass(frozen=True, slots=True)
class StayTimes:
    """What waiting for the copies of some stays costs.

    Attributes:
        waits: of the compute stream for copies of these stays that take time, in running order.
        exposed_s: all these seconds, and those by which loops that move storages take longer than alone.
    """

    waits: tuple[Waiting, ...]
    exposed_s: float


class StayClock:
    """Plays stays beside the operations of one order.

    Attributes:
        begins_s: by position, when its operation begins if nothing waits; one more entry for the end.
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
    def of(evaluator: Evaluator, out: Link, back: Link) -> StayClock:
        """The clock of a sequence. O(positions)."""
        problem, order = evaluator.problem, evaluator.order
        seconds: Floats = np.zeros(len(evaluator.node_of))
        seconds[: problem.node_count] = problem.seconds
        # Execution ids from the node count on are repetitions.
        again = [problem.repeat_seconds[node] for node in evaluator.node_of[problem.node_count :]]
        seconds[problem.node_count :] = again
        seconds = seconds[order]
        return StayClock(seconds, out, back, loops_with_copies(evaluator))

    def play(self, places: Sequence[Places], nbytes: Sequence[int]) -> StayTimes:
        """Times of some stays. O((stays + loops with copies) x log of both).

        Args:
            places: of each stay, in the order in which they are stored where several begin at one position.
        """
        events: list[tuple[int, int, int]] = [(position, _LOOP, 0) for position in self.loops]
        for number, (store, gone, load, back) in enumerate(places):
            if store != BETWEEN:
                events.append((store + 1, _STORE, number))
                events.append((gone + 1, _GONE, number))
            if load != BETWEEN:
                events.append((load, _LOAD, back * len(places) + number))
                events.append((back, _BACK, number))
        events.sort()
        stored, loaded = [0.0] * len(places), [0.0] * len(places)
        waits: list[Waiting] = []
        late = out_free = back_free = 0.0
        for position, kind, key in events:
            now = self.begins_s[position] + late
            if kind == _STORE:
                out_free = max(now, out_free) + self.out.seconds(nbytes[key])
                stored[key] = out_free
            elif kind == _LOAD:
                number = key % len(places)
                back_free = max(now, back_free) + self.back.seconds(nbytes[number])
                loaded[number] = back_free
            elif kind == _LOOP:
                copies = self.loops[position]
                played = copies.play(Busy(max(out_free - now, 0.0), max(back_free - now, 0.0)))
                late += played.waited_s - copies.alone.waited_s
                end = self.begins_s[position + 1] + late
                out_free, back_free = end + played.busy.out_s, end + played.busy.back_s
            else:
                until = stored[key] if kind == _GONE else loaded[key]
                if until > now:
                    waits.append(Waiting(position, until - now, key, kind == _BACK))
                    late += until - now
        return StayTimes(tuple(waits), late)


def loops_with_copies(evaluator: Evaluator) -> dict[int, LoopCopies]:
    """By position of a sequence, the copies of the loop there; only where there are any. O(executions of such loops)."""
    return {
        evaluator.places[execution]: copies
        for node, copies in evaluator.problem.body_copies.items()
        for execution in evaluator.executions[node]
    }

"""What a decision is asked for, and what each candidate frees and costs then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.choices.candidates import Candidate
from neaptide.planner.points.script import Eviction, Script, ScriptWriter, Way
from neaptide.planner.points.shaped import ShapedProgram, ShapeSizes

# Of searches, in choices that are tried: once something keeps the budget, and as long as nothing does.
_MOST_WORK: Final = 300
_MOST_HARD_WORK: Final = 3000
_ONWARDS: Final = 5  # times the work that it took to keep the budget, where that was hard
_BESIDE: Final = 4  # what part of the work is done where another program keeps the budget


@dataclass(frozen=True, slots=True)
class Situation:
    """What a decision is asked for."""

    shaped: ShapedProgram
    candidates: Sequence[Candidate]
    sizes: ShapeSizes
    budget_bytes: int  # highest peak with workspace, what the caller owns included
    host: HostSpace | None = None  # where evicted storages may wait; None: they must be recomputed
    start: int = 0  # position before which the decision is taken
    gone: tuple[Eviction, ...] = ()  # what has been evicted by then and is not back
    # Seconds beside first executions from which on a script is of no use: another program keeps the budget.
    to_beat: float | None = None


class Priced:
    """What the candidates of a situation free and cost; shared by its searches.

    Attributes:
        candidates: that may be evicted from the situation on, or are gone.
        gone: by candidate, what has been evicted by then.
        begin: by candidate, the position before which it is evicted.
        nbytes: by candidate, what it frees.
        ways: by candidate, how it comes back.
        cost: by candidate, seconds of that; infinite where there is no way, or nothing is left to decide.
        users: by unit, candidates that are recomputed from it.
        of_unit: by unit, its candidates.
        sources: by candidate, those that its recomputation reads.
        work: that was done so far, in choices that were tried; a script counts as several.
        kept_after: work after which something was first known that keeps the budget.
    """

    def __init__(self, situation: Situation) -> None:
        sizes, start = situation.sizes, situation.start
        self.situation = situation
        self.writer = ScriptWriter(situation.shaped, sizes)
        self.work, self.kept_after = 0, _MOST_HARD_WORK
        self.gone = {e.candidate: e for e in situation.gone}
        self.candidates = [
            c for c in situation.candidates if c in self.gone or c.end > max(c.start + 1, start)
        ]
        self.begin = [
            self.gone[c].begin if c in self.gone else max(c.start + 1, start) for c in self.candidates
        ]
        self.nbytes = [sum(sizes.storage_bytes[s] for s in c.storages) for c in self.candidates]
        self.ways = [Way.RECOMPUTE] * len(self.candidates)
        self.cost = [float("inf")] * len(self.candidates)
        self.users: dict[int, list[int]] = defaultdict(list)
        self.of_unit: dict[int, list[int]] = defaultdict(list)
        for number, candidate in enumerate(self.candidates):
            self.of_unit[candidate.unit].append(number)
            self._price(number, candidate)
            if self.ways[number] is Way.RECOMPUTE:
                for source in candidate.sources:
                    self.users[source].append(number)
        self.sources = [
            [n for source in c.sources for n in self.of_unit.get(source, ())] if way is Way.RECOMPUTE else []
            for c, way in zip(self.candidates, self.ways, strict=True)
        ]

    def script(self, evictions: Iterable[Eviction]) -> Script:
        """What some decisions mean; see `ScriptWriter.script`."""
        made = self.writer.script(evictions, self.situation.start)
        self.work += 2 + sum(1 + len(eviction.meanwhile) for eviction in made.evictions) // 4
        return made

    def is_tired(self, *, keeps: bool) -> bool:
        """Whether enough has been tried."""
        situation = self.situation
        if situation.to_beat is not None:
            return self.work > _MOST_WORK // _BESIDE
        if not keeps:
            return self.work > _MOST_HARD_WORK
        self.kept_after = min(self.kept_after, self.work)
        return self.work > max(_MOST_WORK, _ONWARDS * self.kept_after)

    def _price(self, number: int, candidate: Candidate) -> None:
        situation = self.situation
        seconds, host = situation.sizes.repeat_seconds, situation.host
        if candidate in self.gone:
            self.ways[number] = self.gone[candidate].way
            return
        if candidate.again:
            self.cost[number] = sum(seconds[node] for node in candidate.again)
        if host is not None and not host.stuck.intersection(candidate.storages):
            taken = sum(host.copy_seconds(situation.sizes.storage_bytes[s]) for s in candidate.storages)
            if taken < self.cost[number] and self.nbytes[number] <= host.nbytes:
                self.cost[number], self.ways[number] = taken, Way.RELOAD

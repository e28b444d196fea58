"""What a region in parts may come to, from the program as it was captured: no graph is made, and nothing is searched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neaptide.analysis.play_bytes import play
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.goal import Goal
from neaptide.planner.variants.variant import ladder
from neaptide.schedule.problem import StepProblem
from neaptide.transform.fission.candidates import Candidate

# What an estimate may be too long by, as a share of the step, before one variant was priced exactly.
_DOUBT: Final = 0.03


@dataclass(frozen=True, slots=True)
class PartCosts:
    """What parts cost beyond the whole, to rank by. Plans are priced exactly.

    Attributes:
        call_seconds: to begin an operation once more.
        added_byte_seconds: to add a byte to a sum.
    """

    call_seconds: float = 5e-6
    added_byte_seconds: float = 3e-10


ON_A_CPU: Final = PartCosts()


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes and seconds of a graph with one region in parts, in program order.

    Attributes:
        region: which one.
        parts: how many.
        peak_bytes: about.
        added_seconds: that parts take beyond the whole, about.
    """

    region: Candidate
    parts: int
    peak_bytes: float
    added_seconds: float


class Outlook:
    """Bytes over the time of a program, for estimates of what parts would leave of them. O(size) to make.

    Args:
        graph: the program.
        pricing: of it.
        costs: of parts.
    """

    def __init__(self, graph: Graph, pricing: Pricing, costs: PartCosts = ON_A_CPU) -> None:
        self.costs = costs
        self.graph, self.problem = graph, pricing.problem(graph)
        self.begin, self.end = _presences(graph, self.problem)
        self.sizes = np.array(self.problem.storage_bytes, dtype=np.float64)

    def of(self, region: Candidate) -> RegionOutlook:
        """What is known of one region. O(size)."""
        return RegionOutlook(self, region)


class RegionOutlook:
    """Bytes while a region runs, by what becomes of them in parts."""

    def __init__(self, outlook: Outlook, region: Candidate) -> None:
        self.outlook, self.region = outlook, region
        self.first, self.last = min(region.members), max(region.members)
        graph = outlook.graph
        self.made = {s for n in region.members for s in graph.created_storages(graph.nodes[n])}
        used: set[int] = set()  # by nodes outside
        handed: set[int] = set()  # to the region
        for node in graph.nodes:
            storages = {graph.values[v].storage for v in needed_inputs(graph, node)}
            (handed if node.id in region.members else used).update(s for s in storages if s is not None)
        self.results = self.made & (used | set(graph.output_storages()))
        self.handed = handed - self.made

    def in_parts(self, parts: int) -> Estimate:
        """About what it comes to in so many parts. O(1) behind the first."""
        problem, costs = self.outlook.problem, self.outlook.costs
        inside = float(np.max(self._carried / parts + self._whole, initial=0.0))
        peak = max(self._outside + inside, self._elsewhere)
        sums = sum(problem.storage_bytes[s] for s in self.results if s not in self.region.in_parts)
        again = (parts - 1) * len(self.region.members) * costs.call_seconds
        again += parts * sums * costs.added_byte_seconds
        return Estimate(self.region, parts, problem.resident_bytes + peak, again)

    @cached_property
    def _carried(self) -> NDArray[np.float64]:
        """By moment of the region, bytes that parts make smaller."""
        return self._bytes_at({s for s in self.made - self.results if s in self.region.in_parts})

    @cached_property
    def _whole(self) -> NDArray[np.float64]:
        """By moment of the region, bytes that are made whole in each part."""
        return self._bytes_at({s for s in self.made - self.results if s not in self.region.in_parts})

    @cached_property
    def _outside(self) -> float:
        """Bytes that are there all the time that the loop runs: what lies in front of it, and its results."""
        outlook = self.outlook
        stays = (outlook.begin <= self.first) & (outlook.end > self.first)
        stays[list(self.made)] = False
        stays[[s for s in self.handed if outlook.begin[s] <= self.last]] = True
        stays[list(self.results)] = True
        return float(outlook.sizes[stays].sum())

    @cached_property
    def _elsewhere(self) -> float:
        """Most bytes while other nodes run; those among the members run without what these make."""
        everything = self._all_bytes_at.copy()
        everything[self.first : self.last + 1] -= self._carried + self._whole
        everything[list(self.region.members)] = 0.0
        return float(everything.max(initial=0.0))

    @cached_property
    def _all_bytes_at(self) -> NDArray[np.float64]:
        outlook = self.outlook
        changes = np.zeros(len(outlook.graph.nodes) + 1)
        there = outlook.begin >= 0
        np.add.at(changes, outlook.begin[there], outlook.sizes[there])
        np.add.at(changes, outlook.end[there], -outlook.sizes[there])
        found: NDArray[np.float64] = np.cumsum(changes)[:-1] + np.array(outlook.problem.workspace)
        return found

    def _bytes_at(self, storages: set[int]) -> NDArray[np.float64]:
        """By moment from the first member to the last, bytes of some storages."""
        outlook = self.outlook
        changes = np.zeros(self.last - self.first + 2)
        for storage in storages:
            if outlook.begin[storage] >= 0:
                changes[outlook.begin[storage] - self.first] += outlook.sizes[storage]
                changes[min(outlook.end[storage], self.last + 1) - self.first] -= outlook.sizes[storage]
        found: NDArray[np.float64] = np.cumsum(changes)[:-1]
        return found


def estimates(outlook: Outlook, regions: Iterable[Candidate]) -> list[Estimate]:
    """Every region in every number of parts that is tried."""
    return [
        seen.in_parts(parts)
        for region in regions
        for seen in (outlook.of(region),)
        for parts in ladder(region.length)
    ]


@dataclass(frozen=True, slots=True)
class Price:
    """What recomputation costs where nothing is split: the plan without variants says it.

    Attributes:
        before_seconds: of the program in its own order.
        share_per_second: part of a peak that a second of recomputation takes away, on the way from the baseline to the
            plan.
        added: what parts take beyond the whole where they were priced exactly, for a second of the estimate; below 0
            where parts are faster. None until one was: parts may turn out to be free.
    """

    before_seconds: float
    share_per_second: float
    added: float | None = None

    @staticmethod
    def of(before: PlannedSequence, plain: PlannedSequence) -> Price:
        """Of a plan beside its baseline."""
        return Price.of_bytes(
            before.seconds,
            before.peak_with_workspace_bytes,
            longer=plain.seconds - before.seconds,
            peak=plain.peak_with_workspace_bytes,
        )

    @staticmethod
    def of_bytes(seconds: float, before: int, *, longer: float, peak: int) -> Price:
        """Of a plan that takes longer than its baseline, and the peaks of both."""
        saved = 1.0 - peak / max(before, 1)
        # Without recomputation nothing is known of it: a tenth of the step's time for a tenth of its peak.
        per_second = saved / longer if longer > 0 and saved > 0 else 1.0 / max(seconds, 1e-9)
        return Price(seconds, per_second)

    def seen(self, estimate: Estimate, seconds: float) -> Price:
        """With what one variant takes in program order, priced exactly."""
        return replace(self, added=(seconds - self.before_seconds) / max(estimate.added_seconds, 1e-9))

    def rank(self, estimate: Estimate, goal: Goal) -> tuple[float, float]:
        """Lower is better: the bytes, or the seconds, that recomputation would bring a variant to."""
        added = 1.0 if self.added is None else self.added
        seconds = self.before_seconds + added * estimate.added_seconds
        if goal.longest is not None:
            slack = max(goal.longest - seconds, 0.0)
            peak = estimate.peak_bytes * max(1.0 - self.share_per_second * slack, 0.0)
            doubt = _DOUBT * self.before_seconds if self.added is None else 0.0
            return max(seconds - goal.longest - doubt, 0.0), peak
        above = max(1.0 - goal.allowed / max(estimate.peak_bytes, 1), 0.0)
        return seconds + above / self.share_per_second, float(estimate.peak_bytes)


def _presences(graph: Graph, problem: StepProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By storage, the step at which it comes and the one at which it has gone; -1 for those of the caller."""
    begin = np.full(len(problem.storage_bytes), -1)
    end = np.full(len(problem.storage_bytes), -1)
    for presence in play(graph, Schedule.program_order(graph)).presences:
        begin[presence.instance.storage], end[presence.instance.storage] = presence.start, presence.end
    return begin, end

"""What regions in parts may come to, from the program as it is: no graph is made, and nothing is searched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from neaptide.analysis.liveness import compute_liveness
from neaptide.cost.devices import Device
from neaptide.ir.dependencies import needed_inputs
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import Schedule
from neaptide.planner.pricing import Pricing
from neaptide.planner.variants.choices import Choice, ladder
from neaptide.planner.variants.variant import Variant
from neaptide.schedule.problem import StepProblem
from neaptide.transform.fission.candidates import Candidate


@dataclass(frozen=True, slots=True)
class PartCosts:
    """What parts cost beyond the whole, to rank by. Plans are priced exactly.

    Attributes:
        half_seconds: of a call that reaches half of the rate, what it would take at the full rate; of arithmetic, and of
            traffic.
        fall: how fast a call loses its rate as it gets smaller, as `Device.fall`.
    """

    call_seconds: float = 5e-6
    added_byte_seconds: float = 3e-10
    half_seconds: tuple[float, float] = (0.0, 0.0)
    fall: float = 1.0

    @staticmethod
    def on(device: Device) -> PartCosts:
        """On a device: a byte that is added is read, what it is added to as well, and written."""
        bandwidth = device.main_space.bandwidth_bytes_per_s
        arithmetic = device.half_flops / device.rate_flops_per_s("float32")
        return PartCosts(
            added_byte_seconds=3.0 / bandwidth,
            half_seconds=(arithmetic, device.half_bytes / bandwidth),
            fall=device.fall,
        )

    def lost(self, seconds: NDArray[np.float64], contracts: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Of the seconds of calls, those that the device is not busy, as `cost.model.roofline_seconds` has it. In parts they grow as
        `parts ** fall`. Of a call that `contracts`, its arithmetic takes the time, else its traffic.
        """
        half = np.where(contracts, *self.half_seconds)
        most = np.maximum(seconds - self.call_seconds, 0.0)
        low, high = np.zeros_like(most), most.copy()  # seconds at the full rate
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            is_less = middle + half**self.fall * middle ** (1.0 - self.fall) < most
            low, high = np.where(is_less, middle, low), np.where(is_less, high, middle)
        found: NDArray[np.float64] = most - low
        return found


ON_A_CPU: Final = PartCosts()
_HALVINGS: Final = 30


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes and seconds of a graph with some regions in parts, in program order.

    Attributes:
        seconds: of what the regions need first, beyond the graph that they follow from.
        added_seconds: that parts take beyond the whole, about; elements that two parts make are among it.
    """

    choice: Choice
    parts: int
    peak_bytes: float
    seconds: float
    added_seconds: float


class Outlook:
    """Bytes over the time of a program, for estimates of what parts would leave of them. O(size) to make.

    Args:
        trips: how often it runs, where it is the body of a loop; its seconds are those of all.
    """

    def __init__(self, graph: Graph, pricing: Pricing, costs: PartCosts = ON_A_CPU, trips: int = 1) -> None:
        self.costs, self.trips = costs, trips
        self.graph, self.problem = graph, pricing.problem(graph)
        each = np.array(self.problem.seconds) / trips
        self.lost = trips * costs.lost(each, np.array(self.problem.is_contraction, dtype=np.bool_))
        self.begin, self.end = _presences(graph, self.problem)
        self.sizes = np.array(self.problem.storage_bytes, dtype=np.float64)
        self.needed: list[set[int]] = []  # storages by node
        self.users: dict[int, list[int]] = defaultdict(list)  # nodes by storage
        for node in graph.nodes:
            storages = (graph.values[v].storage for v in needed_inputs(graph, node))
            self.needed.append({s for s in storages if s is not None})
            for storage in self.needed[-1]:
                self.users[storage].append(node.id)
        self.outputs = set(graph.output_storages())
        changes = np.zeros(len(graph.nodes) + 1)
        there = self.begin >= 0
        np.add.at(changes, self.begin[there], self.sizes[there])
        np.add.at(changes, self.end[there], -self.sizes[there])
        self.bytes_at: NDArray[np.float64] = np.cumsum(changes)[:-1] + np.array(self.problem.workspace)

    def with_loop(self, loop: int, nbytes: float) -> float:
        """The peak where a loop needs so many bytes beyond what it is handed, about. O(moments)."""
        here = self.bytes_at[loop] - self.problem.workspace[loop] + nbytes
        elsewhere = np.delete(self.bytes_at, loop).max(initial=0.0)
        return float(self.problem.persistent_bytes + max(here, elsewhere))


class ChoiceOutlook:
    """Bytes while some regions run in parts, and while other nodes do."""

    def __init__(self, outlook: Outlook, choice: Choice, seconds: float) -> None:
        self.outlook, self.choice, self.seconds = outlook, choice, seconds
        self.regions = [_RegionOutlook(outlook, region) for region in choice.regions]
        # What is only there inside a region is not there while another runs, wherever that stands.
        inside = {s for region in self.regions for s in region.made - region.results}
        self.outside = [region.outside(inside) for region in self.regions]
        everything = outlook.bytes_at.copy()
        for region in self.regions:
            everything[region.first : region.last + 1] -= region.carried + region.whole
        everything[[n for region in choice.regions for n in region.members]] = 0.0
        self.elsewhere = float(everything.max(initial=0.0))

    def in_parts(self, parts: int) -> Estimate:
        """About what it comes to in so many parts. O(moments of the regions)."""
        problem, costs = self.outlook.problem, self.outlook.costs
        peak, again = self.elsewhere, 0.0
        for region, outside in zip(self.regions, self.outside, strict=True):
            inside = float(np.max(region.carried / parts + region.beyond + region.whole, initial=0.0))
            peak = max(peak, outside + inside)
            again += (parts - 1) * len(region.region.members) * self.outlook.trips * costs.call_seconds
            again += (parts**costs.fall - 1.0) * region.lost_seconds
            again += parts * region.sum_bytes * costs.added_byte_seconds
            again += parts * region.twice_seconds
        return Estimate(self.choice, parts, problem.persistent_bytes + peak, self.seconds, again)


class _RegionOutlook:
    """Bytes while one region runs, by what becomes of them in parts.

    `carried`, `beyond` and `whole` are bytes by moment from the first member to the last: those that parts make smaller,
    those that a part makes beside its own, and those that are made whole in each part. `twice_seconds` are those of a part
    for what it makes beside its own, `lost_seconds` those of the whole that the device is not busy.
    """

    def __init__(self, outlook: Outlook, region: Candidate) -> None:
        self.outlook, self.region = outlook, region
        self.first, self.last = min(region.members), max(region.members)
        graph = outlook.graph
        self.made = {s for n in region.members for s in graph.created_storages(graph.nodes[n])}
        members = region.members
        self.results = {
            s for s in self.made if s in outlook.outputs or not members.issuperset(outlook.users.get(s, ()))
        }
        self.handed = {s for n in members for s in outlook.needed[n]} - self.made
        self.carried = self._bytes_at({s for s in self.made - self.results if s in region.in_parts})
        self.whole = self._bytes_at({s for s in self.made - self.results if s not in region.in_parts})
        self.beyond = self._bytes_at(
            {s for s in self.made - self.results if s in region.beyond}, region.beyond
        )
        self.twice_seconds = sum(
            outlook.problem.seconds[n]
            * max((region.beyond.get(s, 0.0) for s in graph.created_storages(graph.nodes[n])), default=0.0)
            for n in region.members
        )
        self.lost_seconds = float(outlook.lost[list(members)].sum())
        self.sum_bytes = float(sum(outlook.sizes[s] for s in self.results if s not in region.in_parts))

    def outside(self, gone: set[int]) -> float:
        """Bytes that are there all the time that the loop runs: what lies in front of it, and its results."""
        outlook = self.outlook
        stays = (outlook.begin <= self.first) & (outlook.end > self.first)
        stays[list(gone)] = False
        stays[[s for s in self.handed if outlook.begin[s] <= self.last]] = True
        stays[list(self.results)] = True
        return float(outlook.sizes[stays].sum())

    def _bytes_at(self, storages: set[int], shares: Mapping[int, float] | None = None) -> NDArray[np.float64]:
        """Bytes by moment of some storages, or of a share of each."""
        outlook = self.outlook
        changes = np.zeros(self.last - self.first + 2)
        for storage in storages:
            if outlook.begin[storage] >= 0:
                nbytes = outlook.sizes[storage] * (1.0 if shares is None else shares[storage])
                changes[outlook.begin[storage] - self.first] += nbytes
                changes[min(outlook.end[storage], self.last + 1) - self.first] -= nbytes
        found: NDArray[np.float64] = np.cumsum(changes)[:-1]
        return found


def estimates(
    begun: Variant, choices: Iterable[Choice], pricing: Pricing, costs: PartCosts = ON_A_CPU
) -> list[Estimate]:
    """Every choice in every number of parts that is tried."""
    outlooks: dict[tuple[int, tuple[int, ...]], _Levels] = {}
    before = pricing.problem(begun.graph).baseline_seconds
    found = []
    for choice in choices:
        key = id(choice.begun), choice.within
        if key not in outlooks:
            outlooks[key] = _Levels.of(choice, pricing, costs)
        levels = outlooks[key]
        seen = ChoiceOutlook(levels.inner, choice, levels.seconds - before)
        found += [levels.outside(seen.in_parts(parts)) for parts in ladder(choice.length)]
    return found


@dataclass(frozen=True)
class _Levels:
    """A graph and the bodies on the way to a region, from the outermost on.

    Attributes:
        around: those around it, each with the loop on the way, the innermost first.
    """

    inner: Outlook
    around: tuple[tuple[Outlook, int], ...]
    seconds: float

    @staticmethod
    def of(choice: Choice, pricing: Pricing, costs: PartCosts) -> _Levels:
        """Those of a choice. O(size)."""
        here = Outlook(choice.begun.graph, pricing, costs)
        seconds, around = here.problem.baseline_seconds, []
        for loop in choice.within:
            around.append((here, loop))
            node = here.graph.nodes[loop]
            pricing = pricing.within(here.graph, node)
            trips = sum(count for count, _ in pricing.runs())
            here = Outlook(node.regions[0].body, pricing, costs, trips)
        return _Levels(here, tuple(reversed(around)), seconds)

    def outside(self, inner: Estimate) -> Estimate:
        """The estimate of the graph, from that of the body."""
        peak, here = inner.peak_bytes, self.inner
        for around, loop in self.around:
            peak, here = around.with_loop(loop, peak - here.problem.persistent_bytes), around
        return replace(inner, peak_bytes=peak)


def _presences(graph: Graph, problem: StepProblem) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By storage, the step at which it comes and the one at which it has gone; -1 for those of the caller."""
    begin = np.full(len(problem.storage_bytes), -1)
    end = np.full(len(problem.storage_bytes), -1)
    for instance in compute_liveness(graph, Schedule.program_order(graph)).instances:
        if not instance.is_persistent:
            begin[instance.storage], end[instance.storage] = instance.start, instance.end
    return begin, end

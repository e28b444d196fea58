"""The host as a planner sees it: how many bytes it has for a step, what copies cost, and what may not leave the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neaptide.analysis.transfer_legality import storages_in_collectives
from neaptide.cost.devices import Device, Link
from neaptide.ir.graph import Graph
from neaptide.linear.arrays import Flags
from neaptide.planner.offload.gaps import IdleGap, idle_gaps
from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.timeline import copy_links


@dataclass(frozen=True, slots=True)
class HostSpace:
    """Room on the host.

    Attributes:
        nbytes: that storages may take there at once.
        out: the link to the host.
        back: the link from it.
        stuck: storages that stay on the device.
        borders: nodes that begin a later segment; everything is back by then.
        closed_from: node from whose first execution on everything is on the device; None where there is none.
    """

    nbytes: int
    out: Link
    back: Link
    stuck: frozenset[int] = frozenset()
    borders: tuple[int, ...] = ()
    closed_from: int | None = None

    @staticmethod
    def of(graph: Graph, device: Device, nbytes: int) -> HostSpace:
        """Room on the host beside a device for the storages of a graph.

        Raises:
            UsageError: the device has no links.
        """
        out, back = copy_links(device)
        stuck = frozenset(storages_in_collectives(graph))
        borders = tuple(segment.start for segment in graph.segments[1:] if segment.start < segment.end)
        return HostSpace(nbytes, out, back, stuck, borders)

    def copy_seconds(self, nbytes: int) -> float:
        """Seconds of a copy of a storage to the host and back, when nothing hides them."""
        return sum(link.seconds(nbytes) for link in (self.out, self.back))

    def gaps(self, evaluator: Evaluator) -> list[IdleGap]:
        """Where storages of a sequence may wait on the host; transfers that it has are left out of account."""
        gaps = [gap for gap in idle_gaps(evaluator, self.stuck) if gap.nbytes <= self.nbytes]
        start = np.array([gap.start for gap in gaps], dtype=np.int64)
        end = np.array([gap.end for gap in gaps], dtype=np.int64)
        may_fill = self.may_fill(evaluator, start, end).tolist()
        return [gap for gap, may in zip(gaps, may_fill, strict=True) if may]

    def movable(self, step: StepProblem) -> list[int]:
        """Storages that may wait on the host where they are idle. O(storages)."""
        return [
            storage
            for storage in range(len(step.storage_bytes))
            if 0 < step.moved_bytes(storage) <= self.nbytes and storage not in self.stuck
        ]

    def may_fill(self, evaluator: Evaluator, start: Ints, end: Ints) -> Flags:
        """Whether gaps of movable storages may be filled, by the positions of their ends. O(gaps x borders)."""
        places, closed = evaluator.places, self.closed_from
        found: Flags = end <= (len(evaluator.order) if closed is None else places[closed])
        for border in (places[node] for node in self.borders):
            found &= (start >= border) | (end <= border)
        return found

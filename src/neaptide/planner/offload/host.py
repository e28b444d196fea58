"""The host as a planner sees it: how many bytes it has for a step, what copies cost, and what may not leave the device."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.analysis.kinds import storages_between_steps
from neaptide.analysis.legality.transfers import storages_in_collectives
from neaptide.cost.devices import Device, Link
from neaptide.ir.graph import Graph
from neaptide.linear.arrays import Flags
from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.timeline import copy_links


@dataclass(frozen=True, slots=True)
class HostSpace:
    """Room on the host.

    Attributes:
        nbytes: that storages may take there at once.
        stuck: storages that stay on the device.
        borders: nodes that begin a later segment; everything is back by then.
        closed_from: node from whose first execution on everything is on the device; None where there is none.
        may_be_between: storages that may be on the host between two steps.
        between: those that are, in plans that are looked for now.
    """

    nbytes: int
    out: Link
    back: Link
    stuck: frozenset[int] = frozenset()
    borders: tuple[int, ...] = ()
    closed_from: int | None = None
    may_be_between: frozenset[int] = frozenset()
    between: frozenset[int] = frozenset()

    @staticmethod
    def of(graph: Graph, device: Device, nbytes: int, *, state_between_steps: bool = False) -> HostSpace:
        """Room on the host beside a device for the storages of a graph.

        Args:
            state_between_steps: whether parameters and optimizer states may be there between two steps. Those of a graph
                in segments may not: what lies between segments does not know of it.

        Raises:
            UsageError: the device has no links.
        """
        out, back = copy_links(device)
        stuck = frozenset(storages_in_collectives(graph))
        borders = tuple(segment.start for segment in graph.segments[1:] if segment.start < segment.end)
        may_be_between = state_between_steps and not borders
        between = storages_between_steps(graph) - stuck if may_be_between else frozenset[int]()
        return HostSpace(nbytes, out, back, stuck, borders, may_be_between=between)

    def copy_seconds(self, nbytes: int) -> float:
        """Seconds of a copy of a storage to the host and back, when nothing hides them."""
        return sum(link.seconds(nbytes) for link in (self.out, self.back))

    def least_bytes(self, step: StepProblem) -> int:
        """No plan has a lower peak with workspace, whatever waits here meanwhile."""
        if self.may_be_between:
            return step.lower_bound_with_state_between
        return step.lower_bound_with_state_away

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

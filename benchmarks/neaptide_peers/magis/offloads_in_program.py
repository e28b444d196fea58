"""The offloads of a state in the program that the state comes to.

A loop brings nodes of its own and takes others with it, so an offload is found again by its storage and by who needs that next. It
is placed as in the simulation, with the seconds of the rewritten program: stored as early as it can be, loaded as late as just
hides the copy (`offloads`). The planner's own placing (`planner.offload.placement`) needs a budget in bytes, and a search for
the lowest peak has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from neaptide.errors import RewriteError
from neaptide.ir.graph import Graph
from neaptide.planner.offload.carried import OffloadPlan, plan_of_placed
from neaptide.planner.offload.gap_table import GapTable
from neaptide.planner.offload.gaps import IdleGap
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.placement import Placement
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.timeline import OffloadClock
from neaptide_peers.magis.carry_out import CarriedOut
from neaptide_peers.magis.offloads import SimulatedOffload, offload_between
from neaptide_peers.magis.state import Away

_NOBODY = -1


@dataclass(frozen=True, slots=True)
class OffloadedProgram:
    """A state that was carried out, but for its offloads.

    Attributes:
        step: the program of the search.
        carried: what a state of it comes to.
        evaluator: of a sequence of its graph, without transfers.
        host: where its storages may wait.
    """

    step: Graph
    carried: CarriedOut
    evaluator: Evaluator
    host: HostSpace

    def with_offloads(self, away: frozenset[Away], strategy: str) -> OffloadPlan:
        """The sequence with some offloads. An offload that frees nothing here is left out. O(uses x log uses + gaps x positions).

        Args:
            away: as of a state.
            strategy: name of what found it.

        Raises:
            RewriteError: the host has no room for them.
        """
        clock = OffloadClock.of(self.evaluator, self.host.out, self.host.back)
        found = sorted(self._placed(away, clock), key=lambda one: one[0].as_they_begin())
        gaps = tuple(gap for gap, _ in found)
        places = tuple((s.store_after, s.gone_after, s.load_before, s.needed) for _, s in found)
        times = clock.play(places, [gap.nbytes for gap in gaps])
        on_device = self.evaluator.bytes.copy()
        for gap, (_, gone, load, _) in zip(gaps, places, strict=True):
            on_device[gone + 1 : load] -= gap.nbytes
        placed = Placement(gaps, places, times, int(on_device.max(initial=0)))
        plan = plan_of_placed(self.evaluator, placed, strategy)
        if plan.host_bytes > self.host.nbytes:
            raise RewriteError(f"the host has no room for offloads of {plan.host_bytes} bytes at once")
        return plan

    def _placed(
        self, away: frozenset[Away], clock: OffloadClock
    ) -> Iterator[tuple[IdleGap, SimulatedOffload]]:
        """Of an instance the first offload that frees bytes, as in the simulation."""
        users = self._users_of(away)
        starts, out, back = clock.begins_s, self.host.out, self.host.back
        done: set[tuple[int, int]] = set()
        for gap in GapTable(self.evaluator, self.host).all():
            instance = gap.storage, gap.occurrence
            wanted = users.get(gap.storage)
            if not wanted or instance in done or self._needed_by(gap) not in wanted:
                continue
            offload = offload_between(
                gap.occurrence, gap.storage, gap.nbytes, gap.start, gap.end, starts, out, back
            )
            if offload is not None:
                done.add(instance)
                yield gap, offload

    def _users_of(self, away: frozenset[Away]) -> Mapping[int, frozenset[int]]:
        """By storage of the rewritten program, the nodes of the step that it is to be back for."""
        users: dict[int, set[int]] = {}
        for tensor, user in away:
            users.setdefault(tensor, set()).add(user)
        values, edited = self.step.values, self.carried.edited
        found: dict[int, frozenset[int]] = {}
        for value, old in zip(edited.graph.values, edited.value_of, strict=True):
            before = None if old < 0 else values[old].storage
            if before in users and value.storage is not None:
                found[value.storage] = frozenset(users[before])
        return found

    def _needed_by(self, gap: IdleGap) -> int:
        """The node of the step for which a storage is back after a gap; `_NOBODY` for a recomputation.

        What a loop brings in front of it, such as a view at its border, needs the storage for the loop.
        """
        evaluator = self.evaluator
        touched = evaluator.uses(gap.storage)[gap.occurrence].touched_by
        for execution in touched[touched.index(gap.following) :] if gap.following in touched else ():
            if execution >= evaluator.problem.node_count:
                return _NOBODY
            if self.carried.standing[execution] >= 0:
                return self.carried.standing[execution]
        return _NOBODY

"""The points of a program for all shapes, without those that no shape can need, and the decisions of shapes seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neaptide.cost.model import EstimatedCost
from neaptide.ir.graph import Graph
from neaptide.ir.loops.maps import chosen_dims
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.choices.candidates import Candidate, all_candidates
from neaptide.planner.points.choices.decide import Policy, least_cost_cover, script_rank
from neaptide.planner.points.choices.situation import Situation
from neaptide.planner.points.script import Eviction, Script
from neaptide.planner.points.shaped import ShapedProgram, ShapeSizes
from neaptide.plans import PointCounts
from neaptide.schedule.problem import StepProblem
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr

_SCRIPTS_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class PointPlan:
    """What can be decided while a program runs."""

    shaped: ShapedProgram
    candidates: tuple[Candidate, ...]  # what may be evicted for some shape
    points: frozenset[int]  # positions before which something may be done
    repeatable: frozenset[int]  # nodes that may run again
    host: HostSpace | None  # where evicted storages may wait; None: nowhere
    counts: PointCounts  # of what was found and what was left out

    @property
    def evictable(self) -> frozenset[int]:
        """Storages that may be evicted for some shape."""
        return frozenset(storage for candidate in self.candidates for storage in candidate.storages)


def point_plan(
    graph: Graph,
    cost: EstimatedCost,
    order: Sequence[int],
    sample: Mapping[str, int],
    *,
    least_budget_bytes: int,
    host: HostSpace | None = None,
    known: StepProblem | None = None,
) -> PointPlan:
    """Find all points of a program and leave out those that no shape in the ranges of its dims can need.

    No run is given less than `least_budget_bytes` from its beginning. `known` are measured bytes and seconds of a graph
    without dims and loops. O(uses x size of the subgraphs + positions x terms).
    """
    shaped = ShapedProgram(graph, cost, order, sample, known)
    found = all_candidates(shaped.units)
    store = SizeRelations(graph.dims, graph.relations)
    hot = _above(shaped, least_budget_bytes, store)
    counts = {"no_way_back": 0, "no_bytes": 0, "always_fits": 0}
    kept = []
    for candidate in found:
        if not candidate.again and (host is None or host.stuck.intersection(candidate.storages)):
            counts["no_way_back"] += 1
        elif all(store.bound(shaped.storage_sizes[s]).high == 0 for s in candidate.storages):
            counts["no_bytes"] += 1
        elif hot[candidate.end] == hot[candidate.start + 1]:
            counts["always_fits"] += 1
        else:
            kept.append(candidate)
    points = _points(shaped, kept)
    repeatable = {node for candidate in kept for node in candidate.again}
    made = {s for node in repeatable for s in shaped.problem.created[node]}
    repeatable.update(node for s in made for node in shaped.problem.views[s])
    return PointPlan(
        shaped,
        tuple(kept),
        frozenset(points),
        frozenset(repeatable),
        host,
        PointCounts(len(found), **counts, points=len(points), positions=len(shaped.units.order) + 1),
    )


def _points(shaped: ShapedProgram, candidates: Sequence[Candidate]) -> set[int]:
    """Where gaps begin and end, and before all nodes within them that take bytes: at others nothing can get too many."""
    found = {p for candidate in candidates for p in (candidate.start + 1, candidate.end)}
    gaps = [0] * (len(shaped.units.order) + 2)
    for candidate in candidates:
        gaps[candidate.start + 1] += 1
        gaps[candidate.end] -= 1
    zero = SizeExpr.const(0)
    idle = 0
    for position, node in enumerate(shaped.units.order):
        idle += gaps[position]
        made = [shaped.storage_sizes[s] for s in shaped.problem.created[node]]
        takes = any(size != zero for size in (*made, shaped.workspace_sizes[node]))
        if idle and (takes or node in shaped.loops):
            found.add(position)
    return found


def _above(shaped: ShapedProgram, budget_bytes: int, store: SizeRelations) -> list[int]:
    """How many positions before each one may be above a budget for some shape: all that are not proved to fit."""
    units, problem = shaped.units, shaped.problem
    zero = SizeExpr.const(0)
    change = [zero] * (problem.node_count + 2)
    for storage, creator in enumerate(problem.creator):
        if creator >= 0 and shaped.storage_sizes[storage] != zero:
            born = units.position_of[creator]
            gone = min(max(units.last_use[storage], born), problem.node_count) + 1
            change[born] = change[born] + shaped.storage_sizes[storage]
            change[gone] = change[gone] - shaped.storage_sizes[storage]
    live, counts = shaped.persistent_size, [0]
    for position in range(problem.node_count + 1):
        live = live + change[position]
        during, node = live, units.order[position] if position < problem.node_count else -1
        if node >= 0:
            during = during + shaped.workspace_sizes[node]
        high = None if node in shaped.loops else store.bound(during).high
        counts.append(counts[-1] + (high is None or high > budget_bytes))
    return [*counts, counts[-1]]


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What is done for one shape under one budget."""

    sizes: ShapeSizes
    script: Script
    due: tuple[int, ...]  # positions at which something is done, ascending


class Decisions:
    """Decides once for each shape and budget what a program evicts."""

    def __init__(self, plan: PointPlan, policy: Policy = least_cost_cover) -> None:
        self.plan, self._policy = plan, policy
        self._known: dict[tuple[tuple[int, ...], int], Decision] = {}
        graph = plan.shaped.graph
        # Lengths of parts are chosen beside the sizes of storages, which may not depend on them.
        self._dims = sorted({d for s in graph.storages for d in s.nbytes.dims()}.union(chosen_dims(graph)))

    def of(self, binding: Mapping[str, int], budget_bytes: int, to_beat: float | None = None) -> Decision:
        """The decision of a shape. One look-up for a shape that was seen under this budget.

        `binding` has all dims, with the lengths of parts. Where another program takes `to_beat` seconds within the budget,
        slower ones need not be found.
        """
        key = (tuple([binding[dim] for dim in self._dims]), budget_bytes)
        found = self._known.get(key)
        if found is None:
            sizes = self.plan.shaped.at(binding)
            spare = None if to_beat is None else to_beat - sizes.seconds
            found = self._decided(sizes, budget_bytes, to_beat=spare)
            rank = script_rank(found.script, sizes, budget_bytes, self.plan.host)
            if spare is None or rank < (0, spare):  # else the search was not carried to its end
                if len(self._known) >= _SCRIPTS_REMEMBERED:
                    self._known.clear()
                self._known[key] = found
        return found

    def again(
        self, sizes: ShapeSizes, budget_bytes: int, position: int, gone: tuple[Eviction, ...]
    ) -> Decision:
        """A decision before a position of a run whose budget has changed; it is not remembered."""
        return self._decided(sizes, budget_bytes, position, gone)

    def _decided(
        self,
        sizes: ShapeSizes,
        budget_bytes: int,
        start: int = 0,
        gone: tuple[Eviction, ...] = (),
        to_beat: float | None = None,
    ) -> Decision:
        plan = self.plan
        situation = Situation(
            plan.shaped, plan.candidates, sizes, budget_bytes, plan.host, start, gone, to_beat=to_beat
        )
        script = self._policy(situation)
        return Decision(sizes, script, tuple(sorted(script.actions)))

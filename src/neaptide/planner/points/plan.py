"""The points of a program for all shapes, without those that no shape can need, and the decisions of shapes seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neaptide.analysis.loops import NO_BODIES, Bodies
from neaptide.cost.model import EstimatedCost
from neaptide.ir.graph import Graph
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.points.candidates import Candidate, all_candidates
from neaptide.planner.points.decide import Policy, least_cost_cover, script_rank
from neaptide.planner.points.parts import Lengths, numbers_of_parts, part_lengths, tried
from neaptide.planner.points.script import Eviction, Script
from neaptide.planner.points.shaped import ShapedProgram, ShapeSizes
from neaptide.planner.points.situation import Situation
from neaptide.schedule.problem import StepProblem
from neaptide.symbolic.relations import SizeRelations
from neaptide.symbolic.size_expr import SizeExpr

_SCRIPTS_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class PointCounts:
    """How many evictions a program could decide, and why those that are left out are useless for every shape.

    Attributes:
        found: gaps between two uses of a unit.
        no_way_back: it cannot be recomputed, and there is no host to wait on.
        no_bytes: it has none for any shape.
        always_fits: nothing in the gap is ever above the least budget.
        points: places between operations that are left, of `positions`.
        positions: places between operations.
    """

    found: int
    no_way_back: int
    no_bytes: int
    always_fits: int
    points: int
    positions: int

    @property
    def kept(self) -> int:
        """Gaps that are left."""
        return self.found - self.no_way_back - self.no_bytes - self.always_fits


@dataclass(frozen=True, slots=True)
class PointPlan:
    """What can be decided while a program runs.

    Attributes:
        shaped: the program.
        candidates: what may be evicted for some shape.
        points: positions before which something may be done.
        repeatable: nodes that may run again.
        host: where evicted storages may wait; None: nowhere.
        counts: of what was found and what was left out.
    """

    shaped: ShapedProgram
    candidates: tuple[Candidate, ...]
    points: frozenset[int]
    repeatable: frozenset[int]
    host: HostSpace | None
    counts: PointCounts

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
    bodies: Bodies = NO_BODIES,
    known: StepProblem | None = None,
) -> PointPlan:
    """Find all points of a program and leave out those that no shape in the ranges of its dims can need.

    O(uses x size of the subgraphs + positions x terms).

    Args:
        graph: with symbolic sizes.
        cost: what an execution takes.
        order: of first executions.
        sample: any shape that the program is run on.
        least_budget_bytes: no run is given less from its beginning.
        host: where evicted storages may wait.
        bodies: by loop, the order of its body.
        known: bytes and seconds of a graph without dims and loops, as measured; None to estimate them.
    """
    shaped = ShapedProgram(graph, cost, order, sample, bodies, known)
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
    alive, counts = shaped.resident_size, [0]
    for position in range(problem.node_count + 1):
        alive = alive + change[position]
        during, node = alive, units.order[position] if position < problem.node_count else -1
        if node >= 0:
            during = during + shaped.workspace_sizes[node]
        high = None if node in shaped.loops else store.bound(during).high
        counts.append(counts[-1] + (high is None or high > budget_bytes))
    return [*counts, counts[-1]]


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What is done for one shape under one budget.

    Attributes:
        sizes: of the shape.
        script: what is done.
        due: positions at which something is done, ascending.
    """

    sizes: ShapeSizes
    script: Script
    due: tuple[int, ...]


class Decisions:
    """Decides once for each shape and budget.

    Args:
        plan: what can be decided.
        policy: how.

    Attributes:
        plan: what can be decided.
    """

    def __init__(self, plan: PointPlan, policy: Policy = least_cost_cover) -> None:
        self.plan, self._policy = plan, policy
        self._known: dict[tuple[tuple[int, ...], int], Decision] = {}
        graph = plan.shaped.graph
        told = {d for s in graph.storages for d in s.nbytes.dims()}
        self._parts = part_lengths(graph)
        self._lengths: dict[tuple[tuple[int, ...], int], Mapping[str, int]] = {}
        self._told = sorted(told.difference(part.dim for part in self._parts))
        self._dims = [*self._told, *(part.dim for part in self._parts)]

    def in_parts(
        self, binding: Mapping[str, int], budget_bytes: int, to_beat: float | None = None
    ) -> Mapping[str, int]:
        """The dims of a shape with lengths of the parts of loops. One look-up for a shape that was seen under this budget.

        Args:
            binding: what the arguments tell.
            budget_bytes: highest peak with workspace.
            to_beat: seconds of a run of another program within the budget: slower ones need not be found.

        Raises:
            SymbolicError: a dim has no value.
        """
        if not self._parts:
            return binding
        key = (tuple([binding[dim] for dim in self._told]), budget_bytes)
        found = self._lengths.get(key)
        if found is None:
            if len(self._lengths) >= _SCRIPTS_REMEMBERED:
                self._lengths.clear()
            found = self._lengths[key] = self._chosen(binding, budget_bytes, to_beat)
        return {**binding, **found}

    def _chosen(self, binding: Mapping[str, int], budget_bytes: int, to_beat: float | None) -> Lengths:
        """The lengths whose script is within the budget at the least seconds of a run.

        Most parts first: where these keep the budget, fewer are searched for only as long as they may be faster.
        """

        def peak(lengths: Lengths) -> int:
            return self.plan.shaped.at({**binding, **lengths}).peak_bytes

        lengths = tried(numbers_of_parts(self._parts, binding), peak, budget_bytes)
        ranks: dict[int, tuple[int, float]] = {}
        for number in reversed(range(len(lengths))):
            made = self.of({**binding, **lengths[number]}, budget_bytes, to_beat)
            above, spent = script_rank(made.script, made.sizes, budget_bytes, self.plan.host)
            seconds = made.sizes.seconds + spent
            ranks[number] = above, seconds
            if not above:
                to_beat = seconds if to_beat is None else min(to_beat, seconds)
        return lengths[min(sorted(ranks), key=ranks.__getitem__)]

    def of(self, binding: Mapping[str, int], budget_bytes: int, to_beat: float | None = None) -> Decision:
        """The decision of a shape. One look-up for a shape that was seen under this budget.

        Args:
            binding: all dims, as `in_parts` gives them.
            budget_bytes: highest peak with workspace.
            to_beat: seconds of a run of another program within the budget: slower ones need not be found.

        Raises:
            SymbolicError: a dim has no value.
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

    def at(self, shape: Mapping[str, int], budget_bytes: int, to_beat: float | None = None) -> Decision:
        """The decision of a shape in the parts that are chosen for it.

        Args:
            shape: what the arguments tell.
            budget_bytes: highest peak with workspace.
            to_beat: seconds of a run of another program within the budget: slower ones need not be found.

        Raises:
            SymbolicError: a dim has no value.
        """
        return self.of(self.in_parts(shape, budget_bytes, to_beat), budget_bytes, to_beat)

    def again(
        self, sizes: ShapeSizes, budget_bytes: int, position: int, gone: tuple[Eviction, ...]
    ) -> Decision:
        """A decision on the way, when the budget has changed; it is not remembered.

        Args:
            sizes: of the shape.
            budget_bytes: the new budget.
            position: before which the run stands.
            gone: what has been evicted by then and is not back.
        """
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

"""What runs for each program of a step: its graph, which may be a rewritten one, and how that runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neaptide.ask import LeaveOut
from neaptide.copy_engines.copy_engine import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.errors import RewriteError
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep, Observation
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Value
from neaptide.planner.points.choices.choice import Choice
from neaptide.planner.variants.variant import Decision, Division, division_of
from neaptide.plans import Plan
from neaptide.runtime.arena.plan import ArenaPlan
from neaptide.runtime.shapes.limit_by_shape import PointsWithin
from neaptide.runtime.shapes.plans import ShapePlans
from neaptide.transform.rewrite import Rewrite, apply_rule, replay
from neaptide.transform.rules import RULES, check_rules

if TYPE_CHECKING:
    from neaptide.runtime.comparing.trials import OpenChoice


@dataclass(frozen=True)
class PlannedGraph:
    """One of the programs of a step, as it runs.

    Attributes:
        observations: gradients as they are when `optimizer.step()` begins, in this graph.
        saved: ids of the caller's storages that are copied before it runs and put back when it dies before it has
            written others (atomic plans).
        points: where a program decides at a call what is evicted; its order is then that of the points. None for none.
        host_bytes: most bytes of storages that its plan has on the host at once; None where no plan says so.
        in_parts: the same program with regions in parts, whose number is chosen for each shape; both have points, and each call
            runs the better of them. None for none.
        by_shape: its plans for all shapes, where dims of the graph vary; `schedule` is then program order. None else.
    """

    program: CapturedProgram
    graph: Graph
    schedule: Schedule
    observations: tuple[Observation, ...]
    checkpoints: tuple[tuple[int, ...], ...]
    rewrites: tuple[Rewrite, ...] = ()
    saved: tuple[int, ...] = ()
    arena: ArenaPlan | None = None
    points: PointsWithin | None = None
    decisions: tuple[Decision, ...] = ()
    host_bytes: int | None = None
    in_parts: PlannedGraph | None = None
    by_shape: ShapePlans | None = None

    @property
    def division(self) -> Division:
        """What runs in parts. O(nodes)."""
        return division_of(self.graph, self.decisions)

    @property
    def with_points(self) -> tuple[PointsWithin, ...]:
        """Points of this program, and of the one in parts."""
        return tuple(
            made.points for made in (self, self.in_parts) if made is not None and made.points is not None
        )

    def choice(self) -> Choice:
        """What chooses among the programs with points."""
        found = self.with_points
        return Choice([points.plan for points in found], found[0].policy)

    @property
    def keeps_bits(self) -> bool:
        """Whether no rewrite of it takes sums in another order."""
        own = all(rewrite.keeps_bits for rewrite in self.rewrites)
        return own and (self.in_parts is None or self.in_parts.keeps_bits)

    @property
    def limit_bytes(self) -> int:
        """Bytes that a program which decides at its calls stays within at every shape; 0 for another."""
        return next((made.budget_bytes for made in (self.points, self.by_shape) if made is not None), 0)

    @staticmethod
    def captured(program: CapturedProgram, schedule: Schedule | None = None) -> PlannedGraph:
        """A program as captured, in program order unless another is given."""
        order = Schedule.program_order(program.graph) if schedule is None else schedule
        return PlannedGraph(program, program.graph, order, program.observations, program.checkpoints)

    def objection(self, edited: Edited) -> str | None:
        """Why this graph may not become another one, for what verify runs observe; None where it may."""
        try:
            self.rewritten(edited, ())
        except RewriteError as error:
            return error.what
        return None

    def rewritten(self, edited: Edited, rewrites: tuple[Rewrite, ...]) -> PlannedGraph:
        """The graph after further rewrites, in program order. O(size)."""
        there = _Followed(self.graph, edited)
        return replace(
            self,
            graph=edited.graph,
            schedule=Schedule.program_order(edited.graph),
            observations=tuple(there.observation(seen) for seen in self.observations),
            checkpoints=tuple(there.nodes(nodes) for nodes in self.checkpoints),
            rewrites=(*self.rewrites, *rewrites),
        )


@dataclass(frozen=True)
class PlannedVariant:
    """A capture and what runs for each of its programs.

    Attributes:
        slow: where storages wait meanwhile; how many bytes each graph has there is in `PlannedGraph.host_bytes`.
        choice: what decides at the first usual call which plan really runs; None where that is settled.
    """

    captured: CapturedStep
    graphs: tuple[PlannedGraph, ...]
    plan: Plan | None = None
    slow: SlowMemory = DEFAULT_SLOW_MEMORY
    choice: OpenChoice | None = None

    @property
    def keeps_bits(self) -> bool:
        """Whether the step gives eager's bits; otherwise some sums are taken in another order."""
        return all(planned.keeps_bits for planned in self.graphs)


def with_rule(planned: PlannedGraph, registry: OpRegistry, name: str) -> PlannedGraph:
    """A graph after all that a rule finds in it; places that would take away what verify runs observe are left alone."""
    check_rules([name])
    made = apply_rule(planned.graph, registry, RULES[name], planned.objection)
    return planned.rewritten(made.edited, made.rewrites) if made.rewrites else planned


def with_rewrites(
    planned: PlannedGraph,
    registry: OpRegistry,
    asked: Sequence[str | Rewrite],
    leave_out: LeaveOut | None = None,
) -> PlannedGraph:
    """A graph after some rewrites, and after all that some rules find, one after the other.

    Args:
        leave_out: told the rule and the reason of a rewrite that is not legal, unless its rule is named later and finds
            something. None: that is an error.
    """
    left: dict[str, str] = {}
    for one in asked:
        if isinstance(one, str):
            before, planned = planned, with_rule(planned, registry, one)
            if planned is not before:
                left.pop(one, None)
            continue
        try:
            planned = planned.rewritten(replay(planned.graph, registry, [one], RULES), (one,))
        except RewriteError as error:
            if leave_out is None:
                raise
            left.setdefault(one.rule, error.what)
    for rule, why in left.items():
        assert leave_out is not None
        leave_out(rule, why)
    return planned


class _Followed:
    """Where the parts of a graph are after a change."""

    def __init__(self, before: Graph, edited: Edited) -> None:
        self.before, self.after = before, edited.graph
        self.node_id = {old: new for new, old in enumerate(edited.node_of) if old >= 0}
        self.value_id = {old: new for new, old in enumerate(edited.value_of) if old >= 0}
        self.writer = {(a.storage, a.version): node.id for node in before.nodes for a in node.effects.writes}

    def nodes(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.node_id[node] for node in nodes if node in self.node_id)

    def observation(self, seen: Observation) -> Observation:
        old, value = self.before.values[seen.value], self.value_id.get(seen.value)
        version = None if value is None else self._version(old, seen.version, self.after.values[value])
        if value is None or version is None:
            raise RewriteError(f"verify runs observe {seen.name}, which it takes away")
        return replace(seen, value=value, version=version)

    def _version(self, old: Value, version: int, new: Value) -> int | None:
        """What a version of the storage of a value is called now; None where it is not made any more."""
        if version == old.version:
            return new.version
        assert old.storage is not None
        node = self.node_id.get(self.writer.get((old.storage, version), -1))
        written = () if node is None else self.after.nodes[node].effects.writes
        return next((access.version for access in written if access.storage == new.storage), None)


@dataclass(frozen=True)
class StepPlan:
    """A plan as data and ready to run."""

    plan: Plan
    variant: PlannedVariant

"""Runs a program with points: decides at a call, with exact sizes, what is evicted and how it comes back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from neaptide.errors import InfeasibleBudget
from neaptide.ir.registry import OpRegistry
from neaptide.lower.point_program import point_program
from neaptide.lower.program import Watch
from neaptide.lower.random_states import DrawnAgain
from neaptide.movers.host_pool import HostCopy, HostPool, make_mover
from neaptide.movers.slow_memory import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.planner.points.choice import Choice
from neaptide.planner.points.decide import Policy, least_cost_cover
from neaptide.planner.points.plan import Decision, PointPlan
from neaptide.planner.points.script import Action, Kind, Way
from neaptide.runtime.arena.layout_by_shape import ArenaAtShape
from neaptide.runtime.arena.tensors_by_shape import RunTensors, ShapePlaces
from neaptide.runtime.calls.executor import Executable, Input
from neaptide.runtime.shapes.limit_by_shape import LimitByShape
from neaptide.units import format_bytes

_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class EvictionTotals:
    """What happened in a run.

    Attributes:
        peak_bytes: most bytes at any moment, with what the caller owns and with workspace, as counted; in an arena with
            the whole block.
        evicted: units that were evicted.
        reloaded: of these, units that came back from the host.
        executions: of nodes, repetitions included.
        repeated: nodes that ran again.
        decisions: that were taken on the way, since the budget had changed.
    """

    peak_bytes: int
    evicted: int
    reloaded: int
    executions: int
    repeated: int
    decisions: int


class PointExecutable(Executable):
    """A program with points; called like any other.

    Args:
        in_parts: the same program with regions in parts, and the same budget; each call runs the better of both for its shape.
        limit: highest peak by shape, in place of `budget_bytes` until that is changed; None for none.
        places: an arena that it runs in; a budget that changes while it runs then counts from the next run on, since no part
            of a block can be given up. None for none.

    Attributes:
        inside: the arena of the last run that began; None before there is one, and without an arena.
    """

    def __init__(
        self,
        plan: PointPlan,
        registry: OpRegistry,
        budget_bytes: int,
        *,
        name: str,
        policy: Policy = least_cost_cover,
        slow: SlowMemory = DEFAULT_SLOW_MEMORY,
        watches: Sequence[Watch] = (),
        in_parts: PointExecutable | None = None,
        limit: LimitByShape | None = None,
        places: ShapePlaces | None = None,
    ) -> None:
        shaped = plan.shaped
        made = point_program(
            shaped.graph,
            shaped.units.order,
            registry,
            points=plan.points,
            repeatable=plan.repeatable,
            evictable=plan.evictable,
            last_use=shaped.units.last_use,
            bodies=shaped.bodies,
            watches=watches,
            told={} if places is None else places.arena.results.first.told,
            told_again={} if places is None else places.arena.results.again.told,
        )
        names = {**made.program.names, made.begin: self._begin}
        super().__init__(replace(made.program, names=names), name=name)
        self.totals: EvictionTotals | None = None
        self.plan = plan
        self.places = places
        self.inside: ArenaAtShape | None = None
        self._beside = in_parts
        self._choice = Choice([plan] if in_parts is None else [plan, in_parts.plan], policy)
        self.decisions = self._choice.decisions[0]
        if in_parts is not None:
            in_parts.decisions = self._choice.decisions[1]  # each shape is decided once
        self._last: PointExecutable = self
        self._budget, self._limit = budget_bytes, limit
        self._points: _Points | None = None
        scope = self._function.__globals__
        self.again = {node: (scope[f.name], f.arguments, f.dims) for node, f in made.again.items()}
        self.on_storage: dict[int, list[int]] = {}
        for value in shaped.graph.values:
            if value.storage is not None:
                self.on_storage.setdefault(value.storage, []).append(value.id)
        self.pool: HostPool | None = None
        if in_parts is not None:
            self.pool = in_parts.pool  # one of them runs at a time
        elif plan.host is not None:
            device = torch.device(shaped.problem.device)
            self.pool = HostPool(plan.host.nbytes, make_mover(device, plan.host.nbytes, slow))

    @property
    def budget_bytes(self) -> int:
        """Highest peak with workspace. It may be changed at any time, by any thread: a run reacts at its next point."""
        return self._budget

    @budget_bytes.setter
    def budget_bytes(self, nbytes: int) -> None:
        self._budget, self._limit = nbytes, None
        points = self._points
        if points is not None and self.places is None:
            points.due = -1
        if self._beside is not None:
            self._beside.budget_bytes = nbytes

    def budget_at(self, shape: Mapping[str, int]) -> int:
        """Highest peak with workspace at a shape."""
        return self._budget if self._limit is None else self._limit.at(shape)

    def excess(self, shape: Mapping[str, int]) -> int:
        """Bytes by which a shape stays above its limit, whatever is evicted. One look-up for a shape that was seen."""
        own = {dim.name: shape[dim.name] for dim in self.plan.shaped.graph.dims}
        budget = self.budget_at(own)
        return max(self.decisions.of(own, budget).script.peak_bytes - budget, 0)

    @property
    def live_bytes(self) -> int:
        """Counted bytes at the last point at which something was done; those of the caller alone outside of a run."""
        points = self._points
        if points is None:
            return 0 if self._beside is None else self._beside.live_bytes
        return points.live_bytes

    def run(self, inputs: list[Input], watched: dict[str, torch.Tensor] | None = None) -> tuple[Any, ...]:
        """Run once; gives the graph outputs. See `Executable.run`."""
        if self._beside is not None:
            number = self._choice.number(self._dims.read(inputs), self._budget)
            self._last = self._beside if number else self
        if self._last is not self:
            return self._run_other(self._last, inputs, watched)
        try:
            outputs = super().run(inputs, watched)
            points = self._points
            assert points is not None
            self.totals = points.totals()
            return outputs
        finally:
            self._points = None

    def _run_other(
        self, other: PointExecutable, inputs: list[Input], watched: dict[str, torch.Tensor] | None
    ) -> tuple[Any, ...]:
        self.interruption = None
        try:
            outputs = other.run(inputs, watched)
            self.totals = other.totals
            return outputs
        finally:
            self.interruption = other.interruption

    def written(self, step: int | None = None) -> tuple[str, ...]:
        """As `Executable.written`, of the program that ran last."""
        return super().written(step) if self._last is self else self._last.written(step)

    def let_go(self) -> None:
        """Drop all tensors in the block of the arena, which is replaced."""
        if self.places is not None:
            self.places.let_go()
        if self._beside is not None:
            self._beside.let_go()

    def _binding(self, inputs: list[Input]) -> Mapping[str, int]:
        return self.decisions.in_parts(super()._binding(inputs), self._budget)

    def _begin(self, held: list[Any], sizes: Mapping[str, int]) -> _Points:
        budget = self.budget_at(sizes)
        if self.places is None:
            decision = self.decisions.of(sizes, budget)
            self._refuse_above(budget, decision.script.peak_bytes, decision, sizes)
            self._points = _Points(self, held, sizes, decision, budget)
            return self._points
        inside = self.inside = self.places.within(self.decisions, sizes, budget)
        self._refuse_above(budget, inside.peak_with_workspace_bytes, inside.decision, sizes)
        tensors = self.places.tensors(inside, budget)
        self._points = _Points(self, held, sizes, inside.decision, budget, tensors)
        return self._points

    def _refuse_above(self, budget: int, peak: int, decision: Decision, sizes: Mapping[str, int]) -> None:
        if peak > budget:
            shape = ", ".join(f"{dim} = {size}" for dim, size in sizes.items())
            raise InfeasibleBudget(
                f"{self.name} does not stay within {format_bytes(budget)}{' for ' if shape else ''}{shape}",
                smallest_peak_bytes=peak,
                lower_bound_bytes=int(decision.sizes.before[0]),
                why="too little may be evicted, or recomputing it takes too many bytes"
                if self.places is None
                else "the arena and what is outside of it take more, whatever is evicted",
                next_step="allow more, or run a smaller shape",
            )


class _Points:
    """The points of one run; `due` and `states` are for the program."""

    __slots__ = (
        "_again",
        "_away",
        "_budget",
        "_decided",
        "_decision",
        "_evicted",
        "_held",
        "_owner",
        "_peak",
        "_reloaded",
        "_repeated",
        "_sizes",
        "due",
        "live_bytes",
        "places",
        "states",
    )

    def __init__(
        self,
        owner: PointExecutable,
        held: list[Any],
        sizes: Mapping[str, int],
        decision: Decision,
        budget: int,
        tensors: RunTensors | None = None,
    ) -> None:
        self._owner, self._held, self._sizes = owner, held, sizes
        self._decision, self._budget = decision, budget
        self._away: dict[int, HostCopy] = {}
        self._peak = self._evicted = self._reloaded = self._repeated = self._decided = 0
        self.live_bytes = int(decision.sizes.before[0])
        self.states: dict[int, bytes] = {}
        self.places: Sequence[torch.Tensor | None] = () if tensors is None else tensors.first
        self._again = None if tensors is None else tensors.again
        self.due = decision.due[0] if decision.due else _NEVER

    def act(self, position: int) -> None:
        """Do what is due at a point; decide anew where the budget has changed."""
        if self._changed():
            self._decide(position)
        due, script, sizes = self._decision.due, self._decision.script, self._decision.sizes
        for action in script.actions.get(position, ()):
            self._carry_out(action)
        away = [e for e in script.evictions if e.begin <= position < e.back]
        self.live_bytes = int(sizes.before[position]) - sum(
            sizes.storage_bytes[s] for e in away for s in e.candidate.storages
        )
        self._evicted += sum(e.begin == position for e in away)
        self._reloaded += sum(e.back == position and e.way is Way.RELOAD for e in script.evictions)
        following = bisect_right(due, position)
        self.due = due[following] if following < len(due) else _NEVER
        if self._changed():
            self.due = -1  # it changed meanwhile

    def _changed(self) -> bool:
        return self._again is None and self._owner.budget_at(self._sizes) != self._budget

    def _decide(self, position: int) -> None:
        script = self._decision.script
        self._peak = max(self._peak, script.peak_before(position))
        self._budget = self._owner.budget_at(self._sizes)
        self._decision = self._owner.decisions.again(
            self._decision.sizes, self._budget, position, script.gone_at(position)
        )
        self._decided += 1

    def _carry_out(self, action: Action) -> None:
        owner, held, target = self._owner, self._held, action.target
        if action.kind is Kind.DROP:
            for value in owner.on_storage[target]:
                held[value] = None
        elif action.kind is Kind.RUN:
            self._run_again(target, action.takes)
        elif action.kind is Kind.STORE:
            assert owner.pool is not None
            tensor = next(held[v] for v in owner.on_storage[target] if held[v] is not None)
            self._away[target] = copy = owner.pool.store(tensor)
            copy.leave()
        else:
            copy = self._away.pop(target)
            copy.load()
            copy.arrive()

    def _run_again(self, node: int, takes: frozenset[int]) -> None:
        owner, held = self._owner, self._held
        function, arguments, dims = owner.again[node]
        taken = [*(held[v] for v in arguments), *(self._sizes[dim] for dim in dims)]
        if self._again is not None:
            taken += self._again[self._repeated]
        graph = owner.plan.shaped.graph
        stream = graph.nodes[node].effects.rng
        if stream is None:
            outputs = function(*taken)
        else:
            with DrawnAgain(stream, self.states[node]):
                outputs = function(*taken)
        for value, output in zip(graph.nodes[node].outputs, outputs, strict=True):
            if graph.values[value].storage in takes:
                held[value] = output
        self._repeated += 1

    def totals(self) -> EvictionTotals:
        """What has happened, at the end of a run."""
        peak = max(self._peak, self._decision.script.peak_bytes)
        inside, places = self._owner.inside, self._owner.places
        if inside is not None and places is not None:
            peak = inside.peak_with_workspace_bytes - inside.arena_bytes + places.block_bytes
        executions = self._owner.plan.shaped.problem.node_count + self._repeated
        return EvictionTotals(peak, self._evicted, self._reloaded, executions, self._repeated, self._decided)

"""Runs a program with points: decides at a call, with exact sizes, what is evicted and how it comes back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from neaptide.copy_engines.copy_engine import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.copy_engines.host_pool import HostCopy, HostPool, make_copy_engine
from neaptide.cost.random_states import drawn_again
from neaptide.errors import InfeasibleBudget
from neaptide.ir.schedule import Schedule
from neaptide.lower.program import Points, Watch
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.planner.points.choices.choice import Choice
from neaptide.planner.points.plan import Decision, Decisions
from neaptide.planner.points.script import Action, Kind, Way
from neaptide.runtime.arena.layout_by_shape import ArenaAtShape, RunTensors
from neaptide.runtime.arena.tensors_by_shape import ShapePlaces
from neaptide.runtime.calls.executor import Compiled, Executable, Input
from neaptide.runtime.shapes.limit_by_shape import PointsWithin
from neaptide.units import format_bytes

_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class EvictionTotals:
    """What happened in a run."""

    peak_bytes: int  # counted, with workspace; in an arena with the whole block
    evicted: int  # units that were evicted
    reloaded: int  # of these, units that came back from the host
    executions: int  # of nodes, repetitions included
    repeated: int  # nodes that ran again
    decisions: int  # that were taken on the way, since the budget had changed


class PointProgram:
    """A program with points, compiled, and what the actions at its points need.

    Attributes:
        places: an arena that it runs in; a budget that changes while it runs then counts from the next run on, since no
            part of a block can be given up. None for none.
    """

    def __init__(
        self,
        within: PointsWithin,
        name: str,
        *,
        watches: Sequence[Watch] = (),
        places: ShapePlaces | None = None,
        slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    ) -> None:
        plan, shaped = within.plan, within.plan.shaped
        self.within, self.plan, self.name, self.places = within, plan, name, places
        results = None if places is None else places.arena.results
        points = Points(plan.points, plan.repeatable, plan.evictable, shaped.units.last_use)
        if results is not None:
            points = replace(points, told=results.first.told, told_again=results.again.told)
        schedule = Schedule.from_nodes(shaped.graph, shaped.units.order)
        self.program = lower(shaped.graph, schedule, registry(), watches=watches, points=points)
        self.on_storage: dict[int, list[int]] = {}
        for value in shaped.graph.values:
            if value.storage is not None:
                self.on_storage.setdefault(value.storage, []).append(value.id)
        self.pool: HostPool | None = None
        if plan.host is not None:
            device = torch.device(shaped.problem.device)
            self.pool = HostPool(plan.host.nbytes, make_copy_engine(device, plan.host.nbytes, slow))

    def compile(self, begin: Callable[[list[Any], Mapping[str, int]], _Points]) -> Compiled:
        """The program, which calls a function at its beginning."""
        made = Compiled(self.program, self.name, {self.program.begin: begin})
        self.again = {
            node: (made.scope[f.name], f.arguments, f.dims) for node, f in self.program.again.items()
        }
        return made


class PointExecutable(Executable):
    """A program with points; called like any other.

    Beside the same program with regions in parts, each call runs the better of both for its shape.

    Attributes:
        totals: of the last run that came to its end; None before there is one.
    """

    def __init__(self, first: PointProgram, in_parts: PointProgram | None = None) -> None:
        within = first.within
        self._programs = [first] if in_parts is None else [first, in_parts]
        if in_parts is not None:
            in_parts.pool = first.pool  # one of them runs at a time
        self._compiled = [made.compile(self._begin) for made in self._programs]
        self._start(self._compiled[0])
        self._choice = Choice([made.plan for made in self._programs], within.policy)
        self._budget, self._limit = within.budget_bytes, within.limit
        self._number = 0
        self._dims_chosen: Mapping[str, int] = {}
        self._points: _Points | None = None
        self.totals: EvictionTotals | None = None
        self.inside: ArenaAtShape | None = None
        self.plan, self.places, self.pool = first.plan, first.places, first.pool

    @property
    def decisions(self) -> Decisions:
        """What was decided for the program of the last call."""
        return self._choice.decisions[self._number]

    @property
    def budget_bytes(self) -> int:
        """Highest peak with workspace. It may be changed at any time, by any thread: a run reacts at its next point."""
        return self._budget

    @budget_bytes.setter
    def budget_bytes(self, nbytes: int) -> None:
        self._budget, self._limit = nbytes, None
        points = self._points
        if points is not None and not points.is_placed:
            points.due = -1

    def budget_at(self, shape: Mapping[str, int]) -> int:
        """Highest peak with workspace at a shape."""
        return self._budget if self._limit is None else self._limit.at(shape)

    def excess(self, shape: Mapping[str, int]) -> int:
        """Bytes by which a shape stays above its limit, whatever is evicted. One look-up for a shape that was seen."""
        own = {dim.name: shape[dim.name] for dim in self.plan.shaped.graph.dims}
        budget = self.budget_at(own)
        return max(self._choice.decisions[0].of(own, budget).script.peak_bytes - budget, 0)

    def prepare(self, shape: Mapping[str, int]) -> Compiled:
        """The program that is better for a shape."""
        self._number, self._dims_chosen = self._choice.chosen(shape, self._budget)
        return self._compiled[self._number]

    def bound(self, _shape: Mapping[str, int]) -> Mapping[str, int]:
        """The dims, with those that the call chooses."""
        return self._dims_chosen

    def run(self, inputs: list[Input], watched: dict[str, torch.Tensor] | None = None) -> tuple[Any, ...]:
        """Run once, or raise `InfeasibleBudget` before anything has run; gives the graph outputs. See `Executable.run`."""
        try:
            outputs = super().run(inputs, watched)
            assert self._points is not None
            self.totals = self._points.totals()
            return outputs
        finally:
            self._points = None

    def let_go(self) -> None:
        """Drop all tensors in the block of the arena, which is replaced."""
        for made in self._programs:
            if made.places is not None:
                made.places.let_go()

    def _begin(self, held: list[Any], sizes: Mapping[str, int]) -> _Points:
        now, budget = self._programs[self._number], self.budget_at(sizes)
        if now.places is None:
            decision, tensors = self.decisions.of(sizes, budget), None
            peak = decision.script.peak_bytes
        else:
            inside = self.inside = now.places.arena.within(self.decisions, sizes, budget)
            decision, peak = inside.decision, inside.peak_with_workspace_bytes
        if peak > budget:
            shape = ", ".join(f"{dim} = {size}" for dim, size in sizes.items())
            raise InfeasibleBudget(
                f"{now.name} does not stay within {format_bytes(budget)}{' for ' if shape else ''}{shape}",
                smallest_peak_bytes=peak,
                lower_bound_bytes=int(decision.sizes.before[0]),
                why="too little may be evicted, or recomputing it takes too many bytes"
                if now.places is None
                else "the arena and what is outside of it take more, whatever is evicted",
                next_step="allow more, or run a smaller shape",
            )
        if now.places is not None:
            tensors = now.places.tensors(inside, budget)
        self._points = _Points(self, now, held, sizes, decision, budget, tensors)
        return self._points


class _Points:
    """The points of one run; `due` and `states` are for the program."""

    def __init__(
        self,
        owner: PointExecutable,
        program: PointProgram,
        held: list[Any],
        sizes: Mapping[str, int],
        decision: Decision,
        budget: int,
        tensors: RunTensors | None = None,
    ) -> None:
        self._owner, self._program, self._held, self._sizes = owner, program, held, sizes
        self._decision, self._budget = decision, budget
        self._away: dict[int, HostCopy] = {}
        self._peak = self._evicted = self._reloaded = self._repeated = self._decided = 0
        self.states: dict[int, bytes] = {}
        self.places: Sequence[torch.Tensor | None] = () if tensors is None else tensors.first
        self._again = None if tensors is None else tensors.again
        self.due = decision.due[0] if decision.due else _NEVER

    @property
    def is_placed(self) -> bool:
        """Whether the results lie in a block, of which no part can be given up while the program runs."""
        return self._again is not None

    def act(self, position: int) -> None:
        if self._changed():
            self._decide(position)
        due, script = self._decision.due, self._decision.script
        for action in script.actions.get(position, ()):
            self._carry_out(action)
        self._evicted += sum(e.begin == position < e.back for e in script.evictions)
        self._reloaded += sum(e.back == position and e.way is Way.RELOAD for e in script.evictions)
        following = bisect_right(due, position)
        self.due = due[following] if following < len(due) else _NEVER
        if self._changed():
            self.due = -1  # it changed meanwhile

    def _changed(self) -> bool:
        return not self.is_placed and self._owner.budget_at(self._sizes) != self._budget

    def _decide(self, position: int) -> None:
        script = self._decision.script
        self._peak = max(self._peak, script.peak_before(position))
        self._budget = self._owner.budget_at(self._sizes)
        self._decision = self._owner.decisions.again(
            self._decision.sizes, self._budget, position, script.gone_at(position)
        )
        self._decided += 1

    def _carry_out(self, action: Action) -> None:
        program, held, target = self._program, self._held, action.target
        if action.kind is Kind.DROP:
            for value in program.on_storage[target]:
                held[value] = None
        elif action.kind is Kind.RUN:
            self._run_again(target, action.takes)
        elif action.kind is Kind.STORE:
            assert program.pool is not None
            tensor = next(held[v] for v in program.on_storage[target] if held[v] is not None)
            self._away[target] = copy = program.pool.store(tensor)
            copy.leave()
        else:
            copy = self._away.pop(target)
            copy.load()
            copy.arrive()

    def _run_again(self, node: int, takes: frozenset[int]) -> None:
        held = self._held
        function, arguments, dims = self._program.again[node]
        taken = [*(held[v] for v in arguments), *(self._sizes[dim] for dim in dims)]
        if self._again is not None:
            taken += self._again[self._repeated]
        graph = self._program.plan.shaped.graph
        stream = graph.nodes[node].effects.rng
        if stream is None:
            outputs = function(*taken)
        else:
            with drawn_again(stream, self.states[node]):
                outputs = function(*taken)
        for value, output in zip(graph.nodes[node].outputs, outputs, strict=True):
            if graph.values[value].storage in takes:
                held[value] = output
        self._repeated += 1

    def totals(self) -> EvictionTotals:
        peak = max(self._peak, self._decision.script.peak_bytes)
        inside, places = self._owner.inside, self._program.places
        if inside is not None and places is not None:
            peak = inside.peak_with_workspace_bytes - inside.arena_bytes + places.block_bytes
        executions = self._program.plan.shaped.problem.node_count + self._repeated
        return EvictionTotals(peak, self._evicted, self._reloaded, executions, self._repeated, self._decided)

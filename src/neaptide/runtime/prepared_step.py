"""A captured step with its costs: what profiling, planning and comparing all begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from neaptide.analysis.axes.in_words import axes_in_words
from neaptide.analysis.loops import NO_BODIES, Bodies
from neaptide.cost.audit import surprises
from neaptide.cost.calibrate import this_machine
from neaptide.cost.call_clock import CallClock
from neaptide.cost.devices import Device
from neaptide.cost.measured import MeasuredCost
from neaptide.cost.model import EstimatedCost
from neaptide.cost.presets import get_device
from neaptide.errors import UsageError
from neaptide.frontends.captured import CapturedStep
from neaptide.frontends.dynamic_dims import Dynamic
from neaptide.frontends.fact_words import user_names
from neaptide.frontends.step_slots import argument_name
from neaptide.interruption import keeping
from neaptide.ir.graph import Graph
from neaptide.movers.slow_memory import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.ops import registry
from neaptide.outcome import LimitGuard, Limits, Stopwatch
from neaptide.planner import BITWISE, CLOSE
from neaptide.planner.body_copies import Links
from neaptide.planner.budget import Budget, allowed_bytes
from neaptide.planner.graph_search import check_strategy
from neaptide.planner.judge_plan import judge_program
from neaptide.planner.loop_bodies import BodyPlanner
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.own_schedule import as_written
from neaptide.planner.plan_graph import GraphPlan, PlanRequest, plan_graph
from neaptide.planner.prices import Prices
from neaptide.planner.pricing import Pricing
from neaptide.planner.rewritten_plan import of_captured, replayed
from neaptide.planner.strategies import early_updates
from neaptide.planner.variants import inner_strategy
from neaptide.planner.variants.choices import Choices
from neaptide.planner.variants.estimate import PartCosts
from neaptide.plans import BudgetRecord, Plan, PlannedProgram, described_role
from neaptide.runtime.arena_plan import ArenaOptions
from neaptide.runtime.arena_planning import plan_arena
from neaptide.runtime.capturing import capture_for_call
from neaptide.runtime.evicting import Eviction, EvictionOptions, check_eviction
from neaptide.runtime.out_probe import probe_outs
from neaptide.runtime.pace import Pace
from neaptide.runtime.plan_facts import described_signature, versions
from neaptide.runtime.planned_graph import LeaveOut, PlannedGraph, PlannedVariant, with_rewrites
from neaptide.runtime.search_options import SearchOptions
from neaptide.runtime.searched_variant import searched_variant, with_closer, with_results_on_operands
from neaptide.runtime.step_plan import StepPlan
from neaptide.schedule.problem import StepProblem
from neaptide.transform.rewrite import Rewrite

# Of the time for a plan, what the search for the usual program gets. The first steps are run once.
_USUAL_SHARE: Final = 0.7

Progress = Callable[[str], None]


class PreparedStep:
    """A captured step and what its operations cost.

    Args:
        captured: the step.
        device: name of a preset to plan for, or None for this machine.
        run_operations: whether operations may be run alone to learn their time, workspace and true sizes; never
            done for a preset or for a step on tensors without bytes.
        progress: told what is going on.
        allow_nondeterministic: operations whose bits differ from run to run may be recomputed.
        refresh: measure this machine and the operations again, whatever the cache has.
        slow: where storages wait that a plan moves, when it runs on this machine.
    """

    def __init__(
        self,
        captured: CapturedStep,
        *,
        device: str | None = None,
        run_operations: bool = True,
        progress: Progress | None = None,
        allow_nondeterministic: bool = False,
        refresh: bool = False,
        slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    ) -> None:
        self.captured = captured
        self.allow_nondeterministic = allow_nondeterministic
        self.say = progress or (lambda _text: None)
        self.slow = slow
        self.device: Device = (
            this_machine(refresh=refresh).with_disk(slow.bytes_per_s)
            if device is None
            else get_device(device)
        )
        self.is_measured = run_operations and device is None and _has_bytes(captured)
        self._prepared: dict[int, Graph] = {}  # kept: else another graph could get its id
        self._rewritten: dict[tuple[int, tuple[str | Rewrite, ...]], PlannedGraph] = {}
        # One for all programs: they have most calls in common, and with `refresh` each is run once.
        self._cost: MeasuredCost | EstimatedCost = (
            MeasuredCost(registry(), refresh=refresh)
            if self.is_measured
            else EstimatedCost(self.device, registry())
        )
        self.quick_pricing = Pricing(
            self._cost,
            registry(),
            allow_nondeterministic=allow_nondeterministic,
            links=Links.of(self.device),
        )
        self.part_costs = PartCosts.on(self.device)
        self._choices: dict[int, Choices] = {}  # by graph, which their objection keeps
        self._problems: dict[int, StepProblem] = {}
        self._written: dict[int, PlannedSequence] = {}
        self.surprises: dict[str, None] = {}

    def pricing(self, graph: Graph) -> Pricing:
        """What prices a captured graph, or one made of it; its operations are run here, the first time."""
        if id(graph) not in self._prepared:
            if isinstance(self._cost, MeasuredCost):
                self.say(f"timing the operations of {graph.name or 'the step'}")
                self._cost.prepare(graph)
            self.surprises.update(dict.fromkeys(surprises(graph, self._cost)))
            self._prepared[id(graph)] = graph
        return self.quick_pricing

    def choices(self, planned: PlannedGraph) -> Choices:
        """What may run in parts in one of the programs; one for all searches."""
        return self._choices.setdefault(id(planned.graph), Choices(registry(), planned.objection))

    def prices(self, graph: Graph | None = None, bodies: Bodies = NO_BODIES) -> Prices:
        """What is known of the time and bytes of a captured graph, or one made of it; by default the usual step's.

        `bodies` are the orders of the bodies of its loops.
        """
        priced = self.captured.steady.graph if graph is None else graph
        return self.pricing(priced).prices(priced, bodies)

    def problem(self, index: int = 0) -> StepProblem:
        """One of the captured programs as integers."""
        if index not in self._problems:
            graph = self.captured.programs[index].graph
            self._problems[index] = self.pricing(graph).problem(graph).named(self.user_names(index))
        return self._problems[index]

    def user_names(self, index: int = 0, rewritten: Graph | None = None) -> dict[int, str]:
        """What the user calls the storages of one of the programs that the caller owns, by id.

        Args:
            index: of the program.
            rewritten: a graph made of it, whose ids are wanted.
        """
        program = self.captured.programs[index]
        graph = program.graph if rewritten is None else rewritten
        batch = user_names(self.captured.signature.batch[0][1])
        found: dict[int, str] = {}
        for value, slot in zip(graph.inputs, program.inputs, strict=True):
            storage = graph.values[value].storage
            if storage is not None:
                name = batch[argument_name(slot.key[1])] if slot.role == "batch" else slot.name
                found.setdefault(storage, name)
        return found

    @property
    def captured_on(self) -> str:
        """Kind of the device whose kernels the step was captured with, such as `cpu`."""
        return self.problem().device.partition(":")[0]

    @property
    def clock(self) -> CallClock | None:
        """What tells the times of operations at one pace; None where they are estimated, or do not run on the processor."""
        return (
            self._cost.clock() if isinstance(self._cost, MeasuredCost) and self.captured_on == "cpu" else None
        )

    def at_kept_pace(self, budget: Budget) -> tuple[Budget, float]:
        """A budget whose limit in seconds is one at the pace that costs are kept at, and how much slower it is now.

        A limit that is no number of seconds is as it was, and the pace of now is not looked at.
        """
        longest = budget.seconds
        clock = None if longest is None else self.clock
        if longest is None or clock is None:
            return budget, 1.0
        factor = Pace(clock.pace_s, clock.usual_pace_s()).factor
        return replace(budget, latency=longest / factor), factor

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """Axes of the usual step, in words."""
        return axes_in_words(self.captured.steady.graph, registry())

    def as_written(self, index: int = 0) -> PlannedSequence:
        """One of the programs as eager runs it: in program order, with the user's own activation checkpointing.

        Where that is higher than without (it can be, at another step), it is the program without.
        """
        if index not in self._written:
            self._written[index] = self._own(PlannedGraph.captured(self.captured.programs[index]))
        return self._written[index]

    def allowed(self, options: SearchOptions, index: int, limit: int | None) -> int:
        """Bytes that one of the programs may use."""
        peak = self.as_written(index).peak_with_workspace_bytes
        return allowed_bytes(options.budget, peak, limit, options.least_bytes)

    def rewritten(
        self,
        index: int,
        asked: tuple[str | Rewrite, ...],
        leave_out: LeaveOut | None = None,
    ) -> PlannedGraph:
        """One of the programs after what `SearchOptions.rewrites` asks for, in program order.

        Args:
            index: of the program; rewrites by their nodes are those of the usual step.
            asked: as in the options.
            leave_out: as in the options. What is left out and then found by name is not told.

        Raises:
            UsageError: no rule of that name.
            RewriteError: a rewrite is not legal in its graph, or takes away what verify runs observe.
        """
        if (index, asked) not in self._rewritten:
            planned = PlannedGraph.captured(self.captured.programs[index])
            here = tuple(one for one in asked if index == 0 or isinstance(one, str))
            planned = with_rewrites(planned, registry(), here, leave_out)
            self._rewritten[index, asked] = planned
        return self._rewritten[index, asked]

    def plan(self, options: SearchOptions) -> StepPlan:
        """Plan every program of the step for one limit in bytes.

        Raises:
            UsageError: no such strategy or rule.
        """
        check_strategy(inner_strategy(options.strategy), atomic=options.atomic)
        programs: list[PlannedProgram] = []
        graphs: list[PlannedGraph] = []
        limit: int | None = None
        guard = LimitGuard(options.limits)
        budget, pace = self.at_kept_pace(options.budget)
        inside = replace(options, budget=budget)
        for index in range(len(self.captured.programs)):
            # The usual program takes the longest; a search that is interrupted then is followed by the others'.
            with keeping() if programs else nullcontext():
                allowed = self.allowed(inside, index, limit)
                part = replace(inside, limits=self._part(options.limits, index, guard))
                program, planned = self.plan_program(index, part, allowed, graphs[0] if graphs else None)
            limit = allowed if limit is None else limit
            programs.append(program)
            graphs.append(planned)
        asked = options.budget
        record = BudgetRecord(
            *(asked.peak, asked.latency, asked.outside_bytes, options.least_bytes, asked.host, pace),
            state_between_steps=asked.state_between_steps,
        )
        plan = Plan(
            programs=tuple(programs),
            name=self.captured.steady.graph.name,
            budget=record,
            seed=options.limits.seed,
            device=self.device.name,
            versions=versions(),
            atomic=options.atomic,
            signature=described_signature(self.captured),
            captured_on=self.captured_on,
            allow_nondeterministic=self.allow_nondeterministic,
            numerics=CLOSE if options.numerics == CLOSE else BITWISE,
            axes=self.axes,
        )
        return StepPlan(plan, PlannedVariant(self.captured, tuple(graphs), plan, self.slow))

    def _part(self, limits: Limits, index: int, guard: LimitGuard) -> Limits:
        """The limits of one program: most of the time for the usual one, the rest for the others.

        The others get their share of the whole even where those before took longer than theirs: a search ends in time,
        but operations of what it found may be timed behind it.
        """
        left, others = guard.remaining_s(), len(self.captured.programs) - 1
        if left is None or not others:
            return limits
        assert limits.time_s is not None
        if not index:
            return replace(limits, time_s=_USUAL_SHARE * limits.time_s)
        least = (1 - _USUAL_SHARE) * limits.time_s / others
        return replace(limits, time_s=max(left / (others - index + 1), least))

    def plan_program(
        self, index: int, options: SearchOptions, allowed: int, like: PlannedGraph | None = None
    ) -> tuple[PlannedProgram, PlannedGraph]:
        """The plan of one of the programs, and what then runs.

        Args:
            index: of the program.
            options: of its search.
            allowed: bytes that it may use.
            like: the usual program as it was decided: another one is rewritten in the same way.
        """
        role = "steady" if index == 0 else f"first_{index}"
        planned = self.rewritten(index, options.rewrites, options.leave_out)
        self.say(f"planning the program of {described_role(role)}: {len(planned.graph.nodes)} operations")

        def asked(planned: PlannedGraph) -> PlanRequest:
            return self.request(index, role, planned, options, allowed)

        if options.numerics == CLOSE:
            planned, found = searched_variant(
                planned,
                asked,
                options,
                self.quick_pricing,
                self.pricing,
                self.part_costs,
                self.choices(planned),
                like,
            )
        else:
            searched, request, watch = planned, asked(planned), Stopwatch()
            found = self._with_bodies(planned.graph, self.pricing(planned.graph), request, options)
            planned, found = with_results_on_operands(
                planned, asked, found, options, self.pricing, watch.seconds()
            )
            if index == 0:
                found = with_closer(searched, request, found, self.quick_pricing, self.part_costs)
        pricing = self.pricing(planned.graph)
        host_bytes = found.program.predictions.host_bytes
        planned = replace(planned, schedule=found.schedule, saved=found.program.saved, host_bytes=host_bytes)
        if not planned.rewrites:
            return found.program, planned
        captured = planned.program.graph
        program = of_captured(found.program, captured, self.pricing(captured), planned.rewrites)
        edited = replayed(program, captured, registry())
        judge_program(
            program,
            edited.graph,
            pricing.problem(planned.graph, found.schedule.bodies),
            registry(),
            captured=captured,
            atomic=options.atomic,
            allow_nondeterministic=self.allow_nondeterministic,
        )
        return program, planned

    def request(
        self, index: int, role: str, planned: PlannedGraph, options: SearchOptions, allowed: int
    ) -> PlanRequest:
        """What is asked of one of the programs, or of what rewrites make of it, for so many bytes."""
        return PlanRequest(
            options.budget,
            role,
            inner_strategy(options.strategy),
            budget_bytes=allowed,
            atomic=options.atomic,
            own=self._own(planned) if planned.checkpoints else None,
            names=self.user_names(index, planned.graph),
            host=self._host(index, planned.graph, options),
        )

    def _host(self, index: int, graph: Graph, options: SearchOptions) -> HostSpace | None:
        """Where storages of a graph may wait; None where nothing is moved."""
        nbytes = options.budget.host_bytes
        if not nbytes:
            return None
        between = options.budget.state_between_steps
        host = HostSpace.of(graph, self.device, nbytes, state_between_steps=between)
        stuck = self._stuck(index, graph)
        return replace(host, stuck=host.stuck | stuck, may_be_between=host.may_be_between - stuck)

    def _stuck(self, index: int, graph: Graph) -> frozenset[int]:
        """Storages of the caller's tensors that cannot give their bytes up: arrays, files or processes share them."""
        slots = {slot.name: slot for slot in self.captured.state.tensors}
        program = self.captured.programs[index]
        return frozenset(
            storage
            for value, slot in zip(graph.inputs, program.inputs, strict=True)
            if slot.key[0] == "tensor"
            and (storage := graph.values[value].storage) is not None
            and not slots[slot.key[1]].current().untyped_storage().resizable()
        )

    def _with_bodies(
        self, graph: Graph, pricing: Pricing, asked: PlanRequest, options: SearchOptions
    ) -> GraphPlan:
        """The plan of a graph with those of its loops' bodies: within what is asked of them, or of the whole."""
        planner = BodyPlanner(pricing, options.limits, options.interrupt)
        if options.bodies is None:
            return planner.around(graph, asked)
        asked = replace(asked, bodies=planner.bodies(graph, options.bodies))
        return plan_graph(graph, pricing, asked, options.limits, interrupt=options.interrupt)

    def _own(self, planned: PlannedGraph) -> PlannedSequence:
        """A graph with the user's own activation checkpointing."""
        return as_written(
            planned.graph,
            self.pricing(planned.graph).problem(planned.graph),
            registry(),
            planned.checkpoints,
            allow_nondeterministic=self.allow_nondeterministic,
        )

    def in_arenas(self, variant: PlannedVariant, options: ArenaOptions | None = None) -> PlannedVariant:
        """The same variant with every program inside an arena.

        Distinct operations are run alone to learn which of them write where they are told.

        Raises:
            UsageError: the step is planned for another device, or on tensors without bytes.
        """
        if not self.is_measured:
            raise UsageError(
                "an arena is made for the machine that the step runs on",
                why="operations must be run to learn which of them write where they are told",
                next_step="plan without a preset, on a model with weights",
            )
        chosen = options or ArenaOptions()
        graphs = []
        for index, planned in enumerate(variant.graphs):
            role = "steady" if index == 0 else f"first_{index}"
            self.say(f"laying out {described_role(role)}")
            graph = planned.graph
            sizes = self.pricing(graph).storage_bytes(graph)
            arena = plan_arena(
                graph,
                planned.schedule,
                registry(),
                self.prices(graph, planned.schedule.bodies),
                probe_outs(graph, registry()),
                self.device,
                chosen,
                saved_bytes=sum(sizes[s] for s in planned.saved),
            )
            graphs.append(replace(planned, arena=arena))
        return replace(variant, graphs=tuple(graphs))

    def evicting(self, options: SearchOptions, eviction: EvictionOptions) -> PlannedVariant:
        """Every program in its own order, evicting while it runs (`runtime.evicting`).

        Only updates run earlier where that is free: gradients that wait for them cannot be evicted. Each program is run
        on paper first, with the bytes and seconds that are known of it.

        Raises:
            InfeasibleBudget: nothing is left to evict at some step, or that was not found out within the time limit.
        """
        graphs = []
        limit: int | None = None
        for index, program in enumerate(self.captured.programs):
            step = self.problem(index)
            allowed = self.allowed(options, index, limit)
            early = early_updates.solve(PlanningProblem(step, 0), Limits()).require()
            decided = Eviction(step, early.sequence, allowed, eviction)
            check_eviction(decided, program.graph.name or "the step", options.limits.time_s)
            limit = allowed if limit is None else limit
            graphs.append(replace(PlannedGraph.captured(program), eviction=decided))
        return PlannedVariant(self.captured, tuple(graphs))

    def baseline_variant(self) -> PlannedVariant:
        """Every program in the order in which it was captured."""
        return PlannedVariant(self.captured, tuple(map(PlannedGraph.captured, self.captured.programs)))


def _has_bytes(captured: CapturedStep) -> bool:
    """Whether what the programs of a step read has bytes; a skeleton that only lends its code needs none."""
    read = {slot.key for program in captured.programs for slot in program.inputs}
    return all(
        slot.current().device.type != "meta"
        for slot in captured.state.tensors
        if ("tensor", slot.name) in read
    )


def prepare(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    state: Any = None,
    device: str | None = None,
    run_operations: bool = True,
    name: str = "",
    progress: Progress | None = None,
    changing: frozenset[str] = frozenset(),
    allow_nondeterministic: bool = False,
    refresh: bool = False,
    slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    dynamic: Dynamic | None = None,
) -> PreparedStep:
    """Capture a step and get ready to cost it; see `frontends.torch_step.capture_step` for the arguments.

    Raises:
        CaptureError: the step cannot be captured; names the user's line.
        UsageError: no device of that name, or a factory instead of a step.
    """
    if device is not None:
        get_device(device)  # a misspelt name is told before the capture, which takes seconds
    if progress is not None:
        progress("capturing the step")
    captured = capture_for_call(step, args, kwargs or {}, dynamic, state=state, name=name, changing=changing)
    return PreparedStep(
        captured,
        device=device,
        run_operations=run_operations,
        progress=progress,
        allow_nondeterministic=allow_nondeterministic,
        refresh=refresh,
        slow=slow,
    )

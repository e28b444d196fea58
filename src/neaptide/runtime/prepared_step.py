"""A captured step ready to be planned: what profiling, planning and comparing all begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

from neaptide.cost.presets import get_device
from neaptide.frontends.dims.dynamic_dims import Dynamic
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.interruption import keeping
from neaptide.ir.graph import Graph
from neaptide.movers.slow_memory import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.outcome import LimitGuard, Limits, Stopwatch
from neaptide.planner import BITWISE, CLOSE
from neaptide.planner.budget import allowed_bytes
from neaptide.planner.garbage import collected_rarely
from neaptide.planner.graph_search import check_strategy
from neaptide.planner.judge_plan import judge_program
from neaptide.planner.loop_bodies import BodyPlanner
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.plan_graph import GraphPlan, PlanRequest, finished_plan, plan_graph
from neaptide.planner.pricing import Pricing
from neaptide.planner.rewritten_plan import of_captured, replayed
from neaptide.planner.variants import inner_strategy
from neaptide.planner.variants.met import MetPlans
from neaptide.planner.variants.variant_plan import VariantPlan
from neaptide.plans import BudgetRecord, Plan, PlannedProgram, described_role
from neaptide.runtime.capturing import capture_for_call
from neaptide.runtime.costed_step import CostedStep, Progress
from neaptide.runtime.kept_floors import FLOORS, given_back, question
from neaptide.runtime.plan_facts import described_signature, versions
from neaptide.runtime.planned_graph import LeaveOut, PlannedGraph, PlannedVariant, with_rewrites
from neaptide.runtime.search_options import SearchOptions
from neaptide.runtime.searched_variant import (
    as_variant,
    before_results_on_operands,
    searched_variant,
    with_results_on_operands,
)
from neaptide.runtime.step_plan import StepPlan
from neaptide.transform.rewrite import Rewrite

# Of the time for a plan, what the search for the usual program gets. The first steps are run once.
_USUAL_SHARE: Final = 0.7


class PreparedStep(CostedStep):
    """A captured step whose operations have costs, and the plans that are made of it."""

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
            planned = with_rewrites(planned, self.registry, here, leave_out)
            self._rewritten[index, asked] = planned
        return self._rewritten[index, asked]

    def plan(self, options: SearchOptions, met: MetPlans | None = None) -> StepPlan:
        """Plan every program of the step for one limit in bytes.

        Args:
            options: of the searches.
            met: what searches for other limits of the usual program met, as of `plan_program`.

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
                like, known = (graphs[0], None) if graphs else (None, met)
                program, planned = self.plan_program(index, part, allowed, like, known)
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
            allow_nondeterministic=self.registry.bits_may_vary,
            numerics=CLOSE if options.numerics == CLOSE else BITWISE,
            axes=self.axes if options.explains else (),
            checkpoints=self.captured.checkpoints,
        )
        return StepPlan(plan, PlannedVariant(self.captured, tuple(graphs), plan, self.slow))

    def _part(self, limits: Limits, index: int, guard: LimitGuard) -> Limits:
        """The limits of one program: most of the time for the usual one, the rest for the others.

        The others get their share of the whole even where those before took longer than theirs: a search ends in time,
        but operations of what it found may be timed behind it.
        """
        left, others = guard.remaining_s(), len(self.captured.programs) - 1
        if index:  # run by one call
            limits = replace(limits, runs=1)
        if left is None or not others:
            return limits
        assert limits.time_s is not None
        if not index:
            return replace(limits, time_s=_USUAL_SHARE * limits.time_s)
        least = (1 - _USUAL_SHARE) * limits.time_s / others
        return replace(limits, time_s=max(left / (others - index + 1), least))

    @collected_rarely()
    def plan_program(
        self,
        index: int,
        options: SearchOptions,
        allowed: int,
        like: PlannedGraph | None = None,
        met: MetPlans | None = None,
    ) -> tuple[PlannedProgram, PlannedGraph]:
        """The plan of one of the programs, and what then runs.

        A plan above its budget is kept; it is the answer to who asks for its bytes, should a search find none.

        Args:
            index: of the program.
            options: of its search.
            allowed: bytes that it may use.
            like: the usual program as it was decided: another one is rewritten in the same way.
            met: what searches for other limits of this program met, where sums may be taken in another order.
        """
        program, planned = self._searched(index, options, allowed, like, met)
        peak = program.predictions.peak_with_workspace_bytes
        if peak <= allowed or options.budget.is_min or options.budget.peak is None:
            return program, planned
        captured = self.captured.programs[index]
        asked = question(captured, program.role, self.device.name, options, self.registry)
        kept = FLOORS.within(asked, allowed)
        FLOORS.note(asked, program)
        there = None
        if kept is not None:
            there = given_back(captured, kept, allowed, self.registry, atomic=options.atomic)
        return (program, planned) if there is None else there

    def _searched(
        self,
        index: int,
        options: SearchOptions,
        allowed: int,
        like: PlannedGraph | None,
        met: MetPlans | None,
    ) -> tuple[PlannedProgram, PlannedGraph]:
        """What a search finds; arguments as of `plan_program`."""
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
                met,
            )
        else:
            request, watch = asked(planned), Stopwatch()
            pricing = self.pricing(planned.graph)
            first = replace(options, limits=before_results_on_operands(planned, options, pricing))
            found = self._with_bodies(planned.graph, pricing, request, first)
            planned, found = with_results_on_operands(
                planned, asked, found, options, self.pricing, watch.seconds()
            )
        return self._judged(planned, found, options)

    def usual_program_of(
        self, options: SearchOptions, allowed: int, plan: VariantPlan
    ) -> tuple[PlannedProgram, PlannedGraph]:
        """A plan of the usual program that searches met, laid out and judged, and what then runs.

        Args:
            options: of its layout.
            allowed: bytes that it may use.
            plan: of a variant.
        """
        planned = as_variant(self.rewritten(0, options.rewrites, options.leave_out), plan.variant)
        request = self.request(0, "steady", planned, options, allowed)
        pricing = self.pricing(planned.graph)
        found = finished_plan(
            planned.graph, pricing, request, options.limits, plan.found, interrupt=options.interrupt
        )
        return self._judged(planned, found, options)

    def _judged(
        self, planned: PlannedGraph, found: GraphPlan, options: SearchOptions
    ) -> tuple[PlannedProgram, PlannedGraph]:
        """A plan as one of the captured program, judged; and what then runs.

        Args:
            planned: the program after its rewrites.
            found: its plan.
            options: of the search.
        """
        pricing = self.pricing(planned.graph)
        host_bytes = found.program.predictions.host_bytes
        planned = replace(planned, schedule=found.schedule, saved=found.program.saved, host_bytes=host_bytes)
        if not planned.rewrites:
            return found.program, planned
        captured = planned.program.graph
        program = of_captured(found.program, captured, self.pricing(captured), planned.rewrites)
        edited = replayed(program, captured, self.registry)
        judge_program(
            program,
            edited.graph,
            pricing.problem(planned.graph, found.schedule.bodies),
            self.registry,
            captured=captured,
            atomic=options.atomic,
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
            own=self.own(planned) if planned.checkpoints else None,
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

    def baseline_variant(self) -> PlannedVariant:
        """Every program in the order in which it was captured."""
        return PlannedVariant(self.captured, tuple(map(PlannedGraph.captured, self.captured.programs)))


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
    bits_may_vary: bool = False,
    refresh: bool = False,
    slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    dynamic: Dynamic | None = None,
    checkpoints: str = "keep",
    like: CapturedStep | None = None,
    replans: bool = False,
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
    captured = capture_for_call(
        *(step, args, kwargs or {}, dynamic, like),
        state=state,
        name=name,
        changing=changing,
        checkpoints=checkpoints,
        replans=replans,
    )
    return PreparedStep(
        captured,
        device=device,
        run_operations=run_operations,
        progress=progress,
        bits_may_vary=bits_may_vary,
        refresh=refresh,
        slow=slow,
    )

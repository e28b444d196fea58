"""A captured step ready to be planned: what profiling, planning and comparing all begin with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final, Unpack

from neaptide.ask import CLOSE, DEFAULT_STRATEGY, Ask, LeaveOut
from neaptide.budget import allowed_bytes
from neaptide.frontends.card.pretended import card_named
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.frontends.torch_step import CaptureOptions
from neaptide.interruption import keeping
from neaptide.ir.edits.edit import Edited
from neaptide.ir.graph import Graph
from neaptide.outcome import LimitGuard, Limits
from neaptide.planner.bodies.plans import BodyPlanner
from neaptide.planner.check_plan import check_baseline
from neaptide.planner.garbage import collected_rarely
from neaptide.planner.graphs.graph_search import check_strategy
from neaptide.planner.graphs.on_operands import Operands
from neaptide.planner.graphs.plan_graph import GraphAsk, GraphPlan, finished_plan
from neaptide.planner.graphs.rewritten_plan import of_captured, replayed
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.variants import inner_strategy
from neaptide.planner.variants.met import MetPlans, VariantPlan
from neaptide.planner.variants.planning import VariantPrices
from neaptide.plans import STEADY, PlannedProgram, described_role, role_of
from neaptide.policy.card_bytes import allocator_peaks
from neaptide.policy.costed_step import CostedStep, CostOptions
from neaptide.policy.fused_groups import with_faster_kernels
from neaptide.policy.kept_floors import kept_floor
from neaptide.policy.plan_facts import plan_of
from neaptide.policy.searched_variant import (
    as_variant,
    searched_variant,
)
from neaptide.runtime.steps.capturing import capture_for_call
from neaptide.runtime.steps.planned_graph import PlannedGraph, PlannedVariant, StepPlan, with_rewrites
from neaptide.transform.rewrite import Rewrite
from neaptide.transform.rules.fusion import FUSION

# Of the time for a plan, what the search for the usual program gets. The first steps are run once.
_USUAL_SHARE: Final = 0.7


class PreparedStep(CostedStep):
    """A captured step whose operations have costs, and the plans that are made of it."""

    def like(self, captured: CapturedStep) -> PreparedStep:
        """Another capture whose costs are found as those of this one; nothing is measured a second time."""
        how: CostOptions = {**self.how, "refresh": False}
        return PreparedStep(captured, **how)

    def allowed(self, ask: Ask, index: int, limit: int | None) -> int:
        """Bytes that one of the programs may use."""
        peak = self.as_written(index).peak_with_workspace_bytes
        return allowed_bytes(self.on_card(ask.budget), peak, limit, ask.least_bytes)

    def rewritten(
        self,
        index: int,
        asked: tuple[str | Rewrite, ...],
        leave_out: LeaveOut | None = None,
    ) -> PlannedGraph:
        """One of the programs after rewrites as `Ask.rewrites`, in program order; those by nodes are the usual step's.

        What is left out and then found by name is not told to `leave_out`.
        """
        if (index, asked) not in self._rewritten:
            planned = PlannedGraph.captured(self.captured.programs[index])
            here = tuple(one for one in asked if index == 0 or isinstance(one, str))
            if is_fused := self.is_measured and here[-1:] == (FUSION.name,):
                here = here[:-1]
            planned = with_rewrites(planned, self.registry, here, leave_out)
            if is_fused:
                planned = with_faster_kernels(planned, self.registry, self.prices, self.say)
            self._rewritten[index, asked] = planned
        return self._rewritten[index, asked]

    def plan(self, ask: Ask, met: MetPlans | None = None) -> StepPlan:
        """Plan every program of the step for one limit in bytes; `met` is what searches for other limits of the usual one met.

        On a card the blocks of its allocator are to stay within the limit too. Where those of a plan do not, the step is planned
        for so much less, once.
        """
        found = self._planned(ask, met)
        over = self._blocks_over(found, ask)
        tighter = self.on_card(ask.budget).tighter(over)
        if not over or tighter == self.on_card(ask.budget):
            return found
        again = self._planned(replace(ask, budget=tighter), met)
        predicted = again.plan.programs[0].predictions.peak_with_workspace_bytes
        return again if predicted <= again.plan.programs[0].budget_bytes else found

    def _blocks_over(self, found: StepPlan, ask: Ask) -> int:
        """Bytes by which the blocks of a card's allocator are above the limit, where the plan itself is within it."""
        planned, program = found.variant.graphs[0], found.plan.programs[0]
        limited = ask.budget.peak is not None and not ask.budget.is_min
        within = program.predictions.peak_with_workspace_bytes <= program.budget_bytes
        if not (self.is_on_card and limited and within) or planned.schedule.has_transfers:
            return 0
        assumed = self.prices(planned.graph, planned.schedule.bodies).assumed
        blocks = allocator_peaks(planned.graph, planned.schedule, assumed, self.library_blocks)
        outside = self.on_card(ask.budget).outside_bytes
        return max(0, blocks.allocated - program.budget_bytes - outside)

    def _planned(self, ask: Ask, met: MetPlans | None) -> StepPlan:
        check_strategy(inner_strategy(ask.strategy), atomic=ask.atomic)
        programs: list[PlannedProgram] = []
        graphs: list[PlannedGraph] = []
        limit: int | None = None
        guard = LimitGuard(ask.limits)
        budget, clock_factor = self.at_kept_clock(ask.budget)
        inside = replace(ask, budget=budget)
        for index in range(len(self.captured.programs)):
            # The usual program takes the longest; a search that is interrupted then is followed by the others'.
            with keeping() if programs else nullcontext():
                allowed = self.allowed(inside, index, limit)
                part = replace(inside, limits=self._part(ask.limits, index, guard))
                like, known = (graphs[0], None) if graphs else (None, met)
                program, planned = self.plan_program(index, part, allowed, like, known)
            limit = allowed if limit is None else limit
            programs.append(program)
            graphs.append(planned)
        plan = plan_of(self, ask, self.captured_on, tuple(programs), clock_factor=clock_factor)
        return StepPlan(plan, PlannedVariant(self.captured, tuple(graphs), plan, self.slow))

    def _part(self, limits: Limits, index: int, guard: LimitGuard) -> Limits:
        """The limits of one program: most of the time for the usual one, the rest for the others.

        The others get their share of the whole even where those before took longer than theirs: a search ends in time,
        but operations of what it found may be timed after it.
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
        ask: Ask,
        allowed: int,
        like: PlannedGraph | None = None,
        met: MetPlans | None = None,
    ) -> tuple[PlannedProgram, PlannedGraph]:
        """The plan of one of the programs, and what then runs.

        A plan above its budget is kept; it is the answer to who asks for its bytes, should a search find none. Another
        program is rewritten like the usual one. `met`: what searches for other limits of this program met, where sums may
        be taken in another order.
        """
        program, planned = self._searched(index, ask, allowed, like, met)
        peak = program.predictions.peak_with_workspace_bytes
        if peak <= allowed or ask.budget.is_min or ask.budget.peak is None:
            return program, planned
        captured = self.captured.programs[index]
        kept = kept_floor(captured, program, self.device.name, ask, allowed, self.registry)
        return kept or (program, planned)

    def _searched(
        self,
        index: int,
        ask: Ask,
        allowed: int,
        like: PlannedGraph | None,
        met: MetPlans | None,
    ) -> tuple[PlannedProgram, PlannedGraph]:
        """What a search finds; arguments as of `plan_program`."""
        role = role_of(index)
        planned = self.rewritten(index, ask.rewrites, ask.leave_out)
        self.say(f"planning the program of {described_role(role)}: {len(planned.graph.nodes)} operations")

        def asked(planned: PlannedGraph) -> GraphAsk:
            return self.request(index, role, planned, ask, allowed)

        if ask.numerics != CLOSE:
            planned, found = self._with_same_bits(planned, asked, ask, asked(planned))
            return self._checked(planned, found)

        def keeping_bits(request: GraphAsk) -> tuple[PlannedGraph, GraphPlan]:
            return self._with_same_bits(planned, asked, ask, request)

        prices = VariantPrices(self.quick_pricing, self.pricing, self.part_costs)
        planned, found = searched_variant(
            planned, asked, ask, prices, self.choices(planned), like, met, keeping_bits
        )
        return self._checked(planned, found)

    def _with_same_bits(
        self,
        planned: PlannedGraph,
        asked: Callable[[PlannedGraph], GraphAsk],
        ask: Ask,
        request: GraphAsk,
    ) -> tuple[PlannedGraph, GraphPlan]:
        """What the search finds that keeps the bits; `request` is what is asked of the program as it is."""
        # Whatever puts an atomic step back counts on what its operations overwrite.
        if ask.in_place and not ask.atomic and ask.strategy == DEFAULT_STRATEGY:

            def alike(edited: Edited) -> GraphAsk:
                return asked(planned.rewritten(edited, ()))

            key = id(planned.graph)
            if key not in self._operands:
                self._operands[key] = Operands.of(planned.graph, self.pricing, alike, planned.objection)
            operands = self._operands[key]
            request = replace(request, operands=operands and replace(operands, asked=alike))
        pricing = self.pricing(planned.graph)
        found = BodyPlanner(pricing, request.limits, ask.interrupt).around(planned.graph, request)
        if found.rewritten is None:
            return planned, found
        edited, rewrite = found.rewritten
        return planned.rewritten(edited, (rewrite,)), found

    def usual_program_of(
        self, ask: Ask, allowed: int, plan: VariantPlan
    ) -> tuple[PlannedProgram, PlannedGraph]:
        """A plan of a variant of the usual program that searches met, laid out and checked, and what then runs."""
        planned = as_variant(self.rewritten(0, ask.rewrites, ask.leave_out), plan.variant)
        request = self.request(0, STEADY, planned, ask, allowed)
        pricing = self.pricing(planned.graph)
        found = finished_plan(planned.graph, pricing, request, plan.found)
        return self._checked(planned, found)

    def _checked(self, planned: PlannedGraph, found: GraphPlan) -> tuple[PlannedProgram, PlannedGraph]:
        """The plan of a rewritten program as one of the captured program, checked; and what then runs."""
        pricing = self.pricing(planned.graph)
        host_bytes = found.program.predictions.host_bytes
        planned = replace(planned, schedule=found.schedule, saved=found.program.saved, host_bytes=host_bytes)
        if not planned.rewrites:
            return found.program, planned
        captured = planned.program.graph
        program = of_captured(found.program, captured, self.pricing(captured), planned.rewrites)
        if found.rewritten is None or planned.rewrites != found.rewritten[1:]:
            replayed(program, captured, self.registry)  # else the graph was made as a replay makes it
        step = pricing.problem(planned.graph, found.schedule.bodies)
        check_baseline(program, planned.graph, step, self.registry, captured)
        return program, planned

    def request(self, index: int, role: str, planned: PlannedGraph, ask: Ask, allowed: int) -> GraphAsk:
        """What is asked of one of the programs, or of what rewrites make of it, for so many bytes."""
        return GraphAsk.of(
            replace(ask, strategy=inner_strategy(ask.strategy)),
            role=role,
            budget_bytes=allowed,
            own=self.own(planned) if planned.checkpoints else None,
            names=self.user_names(index, planned.graph),
            host=self._host(index, planned.graph, ask),
        )

    def _host(self, index: int, graph: Graph, ask: Ask) -> HostSpace | None:
        """Where storages of a graph may wait; None where nothing is moved."""
        nbytes = ask.budget.host_bytes
        if not nbytes:
            return None
        between = ask.budget.state_between_steps
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

    def baseline_variant(self) -> PlannedVariant:
        """Every program in the order in which it was captured."""
        return PlannedVariant(self.captured, tuple(map(PlannedGraph.captured, self.captured.programs)))


class PrepareOptions(CaptureOptions, CostOptions, total=False):
    """How a step is captured, and what its costs are."""


def prepare(
    step: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    **how: Unpack[PrepareOptions],
) -> PreparedStep:
    """Capture a step and get ready to cost it; see `CaptureOptions` and `CostOptions`."""
    further: dict[str, Any] = {**how}
    costs = {name: further.pop(name) for name in CostOptions.__optional_keys__ & how.keys()}
    card = card_named(costs.get("device"))  # a misspelt name is told before the capture, which takes seconds
    if costs.get("progress") is not None:
        costs["progress"]("capturing the step")
    captured = capture_for_call(step, args, kwargs or {}, card=card, **further)
    return PreparedStep(captured, **costs)

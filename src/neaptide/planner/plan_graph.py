"""Plans one graph: price, search, lay out, record, judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Self

from neaptide.analysis.legality import check_bodies, check_schedule
from neaptide.analysis.loops import Bodies
from neaptide.ask import Ask
from neaptide.errors import VerifyError
from neaptide.ir.body_orders import body_orders
from neaptide.ir.edit import Edited
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.schedule import HostStay, Schedule
from neaptide.named_peers import WITH_STAYS, peer
from neaptide.outcome import Limits, Outcome
from neaptide.planner.arena_order import PlannedArena, settle_arena
from neaptide.planner.atomic import AtomicStep, atomic_step, check_atomic
from neaptide.planner.failed_stages import Stage
from neaptide.planner.graph_search import GraphSearch, check_strategy
from neaptide.planner.judge_plan import judge_program
from neaptide.planner.moved_plan import moved_outcome
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.behind_search import before_stays, stays_behind
from neaptide.planner.offload.between_steps import choose_with_state_between
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.copies import copies_record
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.lowest_peak import ChooseStays
from neaptide.planner.offload.outcome import with_stays
from neaptide.planner.offload.search import choose_stays
from neaptide.planner.on_operands import Operands, stays_after
from neaptide.planner.pricing import Pricing
from neaptide.planner.record import ended_as, planned_program, random_state_bytes
from neaptide.planner.strategies import canonical_name
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import PlannedProgram
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.state_bounds import least_with_stays
from neaptide.schedule.stay_times import StayClock
from neaptide.schedule.staying import with_stays as staying
from neaptide.transform.rewrite import Rewrite


@dataclass(frozen=True)
class GraphAsk(Ask):
    """What is asked of the plan of one graph of a step. A budget that limits nothing asks for the lowest peak by order alone.

    Attributes:
        budget_bytes: overrides the bytes that the budget resolves to (programs of one step share a limit).
        names: by storage id, what the user calls what he owns.
        own: the schedule that the user wrote, with activation checkpointing of his own; what the portfolio finds is
            never worse.
        bodies: in what orders the bodies of loops run; program order for those without one. What the budget and the
            baseline mean, they mean under these orders.
        host: where storages may wait; None where nothing is moved. In an atomic step all are back before the first
            update.
        known: plans of this very graph that were found for other limits; a search for the lowest peak begins with them.
        is_draft: the plan is one of several to choose from: it is neither laid out nor judged, and `finished_plan` does both.
            Plans with stays on the host and of atomic steps are never drafts.
        operands: of the graph, where results may lie on them; the plan is then one of `GraphPlan.rewritten`.
    """

    role: str = "steady"
    budget_bytes: int | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    own: PlannedSequence | None = None
    bodies: Bodies = field(default_factory=dict)
    host: HostSpace | None = None
    known: tuple[GraphPlan, ...] = ()
    is_draft: bool = False
    operands: Operands | None = None

    @classmethod
    def of(cls, ask: Ask, **graph: Any) -> Self:
        """What is asked of a step, of one of its graphs."""
        return cls(**{one.name: getattr(ask, one.name) for one in fields(Ask)}, **graph)


@dataclass(frozen=True)
class GraphPlan:
    """The plan that was found for a graph.

    Attributes:
        schedule: the order in which the nodes run, and those in the bodies of loops.
        is_draft: it is neither laid out nor judged; its program has no fingerprint and no bounds of its arena.
        work: of the search for its sequence; searches for bodies of loops and for stays on the host count their own.
        rewritten: the graph that it is the plan of, where results lie on operands in it: other storages, the same nodes.
        stays: on the host, of storages of the graph that was searched.
    """

    program: PlannedProgram
    schedule: Schedule
    is_draft: bool = False
    work: int = 0
    rewritten: tuple[Edited, Rewrite] | None = None
    stays: tuple[HostStay, ...] = ()

    def on(self, step: StepProblem) -> PlannedSequence:
        """What its sequence comes to in a problem of the same nodes, such as one with other orders of bodies. O(its length)."""
        return PlannedSequence.evaluate(step, self.program.sequence, self.program.strategy)


def plan_graph(graph: Graph, pricing: Pricing, asked: GraphAsk) -> GraphPlan:
    """Search for a schedule of a graph within a budget, and check what was found.

    Returns:
        Always a plan: the best found, and judged. Whether it is within the budget is in its outcome and predictions.

    Raises:
        UsageError: no such strategy.
        VerifyError: the order of a body is not legal.
        PlanError: not even program order stands before the judge (a fault of ours).
    """
    check_strategy(asked.strategy, atomic=asked.atomic)
    planning = _GraphPlanning(graph, pricing, asked)
    with Stage("the judge of the plan found", can_be_cut=False):
        outcome = planning.search.run()
        stored = None
        with Stage("the choice of stays on the host"):
            stored = planning.stored(outcome)
        if stored is None:
            return planning.on_operands(outcome, None)
        assert asked.host is not None
        return planning.on_operands(
            with_stays(planning.search, outcome, stored, asked.host), stored.require()
        )
    return planning.nothing_found()


def finished_plan(graph: Graph, pricing: Pricing, asked: GraphAsk, draft: GraphPlan) -> GraphPlan:
    """A draft, laid out and judged; any other plan as it is.

    Args:
        asked: what for; its limits are of the layout.

    Raises:
        PlanError: not even program order stands before the judge (a fault of ours).
    """
    if not draft.is_draft:
        return draft
    asked = replace(asked, bodies=draft.schedule.bodies, known=(), is_draft=False)
    planning = _GraphPlanning(graph, pricing, asked)
    outcome = Outcome(draft.on(planning.step), ended_as(draft.program.termination))
    with Stage("the judge of the plan found", can_be_cut=False):
        return replace(planning.laid_out(outcome), work=draft.work)
    return replace(planning.nothing_found(), work=draft.work)


def plan_of_outcome(
    graph: Graph,
    pricing: Pricing,
    asked: GraphAsk,
    outcome: Outcome[PlannedSequence],
    stored: OffloadPlan,
) -> GraphPlan:
    """The plan of a sequence with stays on the host that is known already, judged as what a search finds.

    Raises:
        VerifyError: the sequence is not legal.
        PlanError: it does not stand before the judge.
    """
    planning = _GraphPlanning(graph, pricing, asked)
    planning.check(outcome.require().sequence)
    return planning.ended(outcome) if not stored.stays else planning.judged(outcome, None, stored)


class _GraphPlanning:
    """One search, and what becomes of its answer."""

    def __init__(self, graph: Graph, pricing: Pricing, asked: GraphAsk) -> None:
        self.graph, self.pricing, self.asked, self.limits = graph, pricing, asked, asked.limits
        check_bodies(graph, asked.bodies, pricing.registry)
        self.step = pricing.problem(graph, asked.bodies).named(asked.names)
        self._legal: tuple[int, ...] | None = None
        self.whole = atomic_step(self.step, pricing.storage_bytes(graph)) if asked.atomic else None
        allowed = asked.budget_bytes
        if allowed is None:
            allowed = asked.budget.resolve(baseline(self.step).peak_with_workspace_bytes)
        step, budget, own = self.step, asked.budget, asked.own
        if asked.operands is not None:
            # A share of more time is one of the graph as it is.
            budget = budget.in_seconds(baseline(step).seconds)
            step = step.on_operands(asked.operands.seconds)
        self.search = GraphSearch(
            step,
            self.whole,
            budget,
            allowed,
            before_stays(asked.limits, asked.host),
            canonical_name(asked.strategy),
            # The bodies of loops run in other orders than when it was evaluated.
            own and PlannedSequence.evaluate(step, own.sequence, own.strategy),
            self.check,
            asked.interrupt,
            tuple(one.on(step) for one in asked.known),
        )

    def check(self, sequence: Sequence[int]) -> None:
        """Refuse a sequence that is not legal; one that was found to be so last is not looked at again."""
        if tuple(sequence) == self._legal:
            return
        check_schedule(self.graph, Schedule.from_nodes(self.graph, sequence), self.pricing.registry)
        if self.whole is not None:
            check_atomic(self.whole, sequence)
        self._legal = tuple(sequence)

    def on_operands(self, outcome: Outcome[PlannedSequence], stored: OffloadPlan | None) -> GraphPlan:
        """What was found, judged: with its results on top of operands where that lowers its peak."""
        found, stays, operands = (
            outcome.require(),
            () if stored is None else stored.stays,
            self.asked.operands,
        )
        if operands is None:
            return self.ended(outcome) if stored is None else self.judged(outcome, None, stored)
        planning, rewritten, moved = self, None, stays
        made = self.beside(found, stays)
        places = Evaluator(self.search.step, found.sequence).on_operand
        taken = [node for node, is_on in places.items() if is_on]
        if taken and found.rank(self.search.allowed) < made.rank(self.search.allowed):
            rewritten = operands.taken(taken)
            graph = rewritten[0].graph
            asked = replace(
                operands.asked(rewritten[0]),
                limits=self.asked.limits,
                bodies=self.asked.bodies,
                budget_bytes=self.search.allowed,
                budget=self.search.budget,
                is_draft=self.asked.is_draft,
            )
            planning = _GraphPlanning(graph, operands.pricing(graph), asked)
            moved = stays_after(self.graph, graph, found.sequence, stays)
            made = planning.beside(found, moved)
        ended = outcome.termination
        if ended.best == found.peak_with_workspace_bytes:
            ended = replace(ended, best=made.peak_with_workspace_bytes)
        elif ended.best == found.seconds:
            # A result that has room of its own can be faster than one on its operand, and sums differ by rounding.
            bound = None if ended.bound is None else min(ended.bound, made.seconds)
            ended = replace(ended, best=made.seconds, bound=bound)
        outcome = replace(outcome, value=made, termination=ended)
        if stored is None:
            plan = planning.ended(outcome)
        else:
            exposed = made.seconds - planning.step.sequence_seconds(found.sequence)
            stored = replace(stored, planned=made, stays=moved, exposed_s=exposed)
            plan = planning.judged(outcome, None, stored)
        return replace(plan, rewritten=rewritten, stays=stays)

    def beside(self, found: PlannedSequence, stays: Sequence[HostStay]) -> PlannedSequence:
        """What a sequence with stays comes to in the graph as it is."""
        evaluator, host, exposed = Evaluator(self.step, found.sequence), self.asked.host, 0.0
        placed = staying(evaluator, stays)
        if stays and host is not None:
            nbytes = [self.step.moved_bytes(stay.storage) for stay in stays]
            clock = StayClock.of(evaluator, host.out, host.back)
            exposed = clock.play([stay.positions for stay in stays], nbytes).exposed_s
        return replace(
            found,
            peak_bytes=placed.peak_without_workspace,
            peak_with_workspace_bytes=placed.peak,
            seconds=evaluator.seconds + exposed,
        )

    def ended(self, outcome: Outcome[PlannedSequence]) -> GraphPlan:
        """A sequence that was found to be legal: as a draft where one is asked for, else laid out and judged."""
        if not self.asked.is_draft or self.whole is not None:
            return self.laid_out(outcome)
        program = self._program(outcome, fingerprint="")
        schedule = Schedule.from_nodes(self.graph, program.sequence, self.asked.bodies)
        return GraphPlan(program, schedule, is_draft=True, work=outcome.work)

    def laid_out(self, outcome: Outcome[PlannedSequence]) -> GraphPlan:
        """A sequence, laid out and judged; steps may be moved for the layout."""
        sequence, limits = outcome.require().sequence, self.search.limits
        arena = unmoved = PlannedArena(sequence, 0, 0)
        with Stage("the layout of the plan"):
            arena = settle_arena(
                self.graph,
                self.step,
                self.pricing,
                sequence,
                Limits(limits.time_s, None, limits.seed),
                self.search.interrupt,
                may_move=self.whole is None,
            )
        if arena.sequence != sequence:
            moved = None
            with Stage("what is proved of the plan laid out"):
                # In the graph as it is: what was searched may have had results on operands.
                moved = moved_outcome(replace(self.search, step=self.step), outcome, arena.sequence)
            outcome, arena = (outcome, unmoved) if moved is None else (moved, arena)
        return self.judged(outcome, arena)

    def stored(self, outcome: Outcome[PlannedSequence]) -> Outcome[OffloadPlan] | None:
        """A better plan with stays on the host; None where none is found, or none is asked for."""
        search, host = self.search, self.asked.host
        if host is None:
            return None
        if self.whole is not None:
            # State that is away between two steps is stored behind the updates, where a copy can fail.
            host = replace(host, closed_from=self.whole.first_write, may_be_between=frozenset())
        name = search.strategy_name
        choose: ChooseStays = peer("strategies", name).choose_stays if name in WITH_STAYS else choose_stays
        if host.may_be_between:
            choose = partial(choose_with_state_between, choose=choose)
        found = stays_behind(search, outcome, host, self.limits, choose)
        plan = found.require()
        if not plan.stays:
            return None
        self.check(plan.planned.sequence)
        return found

    def nothing_found(self) -> GraphPlan:
        """The order that there is in any case, judged."""
        return self.on_operands(self.search.nothing_found(), None)

    def judged(
        self,
        outcome: Outcome[PlannedSequence],
        arena: PlannedArena | None,
        stored: OffloadPlan | None = None,
    ) -> GraphPlan:
        """A sequence, with its layout or its stays if there are any, as the entry of a plan file and judged."""
        graph, step, asked, allowed = self.graph, self.step, self.asked, self.search.allowed
        found = outcome.require()
        program = self._program(outcome, fingerprint(graph), arena)
        if stored is None:
            # Bodies of loops may have stays where the graph around them has none.
            stored = OffloadPlan(found, host_bytes=staying(Evaluator(step, found.sequence)).peak_host_bytes)
        predictions = replace(
            program.predictions, host_bytes=stored.host_bytes, exposed_seconds=stored.exposed_s
        )
        program = replace(program, predictions=predictions, stays=stored.stays)
        if self.whole is not None:
            program = _with_atomic_cost(program, self.whole)
        made, searched = program.predictions, self.search.searched
        predictions = replace(
            made,
            lower_bound_bytes=least_with_stays(searched, made.lower_bound_bytes, program.stays),
            order_lower_bound_bytes=least_with_stays(searched, made.order_lower_bound_bytes, program.stays),
        )
        program = replace(program, predictions=predictions)
        schedule = judge_program(
            program,
            graph,
            step,
            self.pricing.registry,
            atomic=asked.atomic,
            binding=self.pricing.binding,
        )
        least = program.predictions.baseline_peak_with_workspace_bytes
        if self.whole is None and program.predictions.peak_with_workspace_bytes > max(allowed, least):
            raise VerifyError("the search returned a plan above budget and baseline")
        if program.stays and asked.host is not None:
            program = replace(program, copies=copies_record(step, schedule, program.stays, asked.host))
        return GraphPlan(program, schedule, work=outcome.work)

    def _program(
        self, outcome: Outcome[PlannedSequence], fingerprint: str, arena: PlannedArena | None = None
    ) -> PlannedProgram:
        """The entry of a plan file, as the search sees it."""
        graph, asked, found = self.graph, self.asked, outcome.require()
        return planned_program(
            self.step,
            outcome,
            fingerprint=fingerprint,
            budget_bytes=found.peak_with_workspace_bytes if asked.budget.is_min else self.search.allowed,
            role=asked.role,
            name=graph.name,
            arena=arena,
            random_state_bytes=random_state_bytes(graph, found.sequence),
            assumed=self.pricing.prices(graph).assumed,
            bodies=body_orders(asked.bodies),
        )


def _with_atomic_cost(program: PlannedProgram, whole: AtomicStep) -> PlannedProgram:
    """What is saved, and how much higher waiting and saving lift the peak before anything is recomputed."""
    waiting = PlannedSequence.evaluate(whole.step, whole.order, "atomic")
    least = program.predictions.baseline_peak_with_workspace_bytes
    predictions = replace(
        program.predictions,
        saved_bytes=whole.saved_bytes,
        atomic_extra_bytes=max(waiting.peak_with_workspace_bytes - least, 0),
        lower_bound_bytes=whole.step.lower_bound_bytes,
        order_lower_bound_bytes=whole.step.order_lower_bound_bytes,
    )
    return replace(program, predictions=predictions, saved=whole.saved)

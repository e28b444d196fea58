"""Plans one graph: price, search, lay out, record, check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Self

from neaptide.analysis.legality.schedule import check_bodies, check_schedule
from neaptide.analysis.loops import Bodies
from neaptide.ask import Ask
from neaptide.errors import VerifyError
from neaptide.ir.edits.edit import Edited
from neaptide.ir.fingerprint import fingerprint
from neaptide.ir.graph import Graph
from neaptide.ir.loops.orders import body_orders
from neaptide.ir.schedule import Offload, Schedule
from neaptide.named_peers import WITH_OFFLOADS, peer
from neaptide.outcome import Limits, Outcome
from neaptide.planner.arena_order import PlannedArena, moved_outcome, settle_arena
from neaptide.planner.atomic import atomic_step, check_atomic
from neaptide.planner.check_plan import check_program
from neaptide.planner.failed_stages import Stage
from neaptide.planner.graphs.graph_search import GraphSearch, check_strategy
from neaptide.planner.graphs.on_operands import Operands, offloads_after
from neaptide.planner.graphs.record import planned_program
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.offload.between_steps import choose_with_state_between
from neaptide.planner.offload.carried import OffloadPlan
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.lowest_peak import Choose
from neaptide.planner.offload.outcome import before_offload, copies_record, offload_after, with_offload
from neaptide.planner.offload.search import choose_offload
from neaptide.planner.pricing import Pricing
from neaptide.planner.strategies import canonical_name
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import PlannedProgram
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.offloaded import with_offloads as offloaded
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.timeline import OffloadClock
from neaptide.transform.rewrite import Rewrite


@dataclass(frozen=True)
class GraphAsk(Ask):
    """What is asked of the plan of one graph of a step. A budget that limits nothing asks for the lowest peak by order alone."""

    role: str = "steady"
    budget_bytes: int | None = None  # instead of the budget's: programs of one step share a limit
    names: Mapping[int, str] = field(default_factory=dict)  # by storage id, what the user calls what he owns
    own: PlannedSequence | None = None  # the schedule that the user wrote; the answer is never worse
    bodies: Bodies = field(default_factory=dict)  # orders that budget and baseline are meant under
    host: HostSpace | None = None  # where storages may wait; an atomic step has all back before its updates
    known: tuple[GraphPlan, ...] = ()  # plans of this very graph for other limits, to begin with
    is_draft: bool = False  # neither laid out nor checked: `finished_plan` does both
    operands: Operands | None = None  # where results may lie on operands in the plan

    @classmethod
    def of(cls, ask: Ask, **graph: Any) -> Self:
        """What is asked of a step, of one of its graphs."""
        return cls(**{one.name: getattr(ask, one.name) for one in fields(Ask)}, **graph)


@dataclass(frozen=True)
class GraphPlan:
    """The plan that was found for a graph."""

    program: PlannedProgram
    schedule: Schedule  # the order in which the nodes run, and those in the bodies of loops
    is_draft: bool = False  # neither laid out nor checked, without a fingerprint
    work: int = 0  # of the search for its sequence; bodies of loops and offloads count their own
    rewritten: tuple[Edited, Rewrite] | None = None  # the graph of the plan, where results lie on operands
    offloads: tuple[Offload, ...] = ()  # on the host, of storages of the graph that was searched

    def on(self, step: StepProblem) -> PlannedSequence:
        """What its sequence comes to in a problem of the same nodes, such as one with other orders of bodies. O(its length)."""
        return PlannedSequence.evaluate(step, self.program.sequence, self.program.strategy)


def plan_graph(graph: Graph, pricing: Pricing, asked: GraphAsk) -> GraphPlan:
    """Search for a schedule of a graph within a budget: always a plan, the best found and checked, in the budget or not."""
    check_strategy(asked.strategy, atomic=asked.atomic)
    planning = GraphPlanning(graph, pricing, asked)
    with Stage("the checker of the plan found", can_be_cut=False):
        outcome = planning.search.run()
        stored = None
        with Stage("the choice of offloads"):
            stored = planning.stored(outcome)
        if stored is None or asked.host is None:
            return planning.on_operands(outcome, None)
        outcome = with_offload(planning.search, outcome, stored, asked.host)
        return planning.on_operands(outcome, stored.require())
    return planning.nothing_found()


def finished_plan(graph: Graph, pricing: Pricing, asked: GraphAsk, draft: GraphPlan) -> GraphPlan:
    """A draft, laid out and checked; any other plan as it is."""
    if not draft.is_draft:
        return draft
    asked = replace(asked, bodies=draft.schedule.bodies, known=(), is_draft=False)
    planning = GraphPlanning(graph, pricing, asked)
    outcome = Outcome(draft.on(planning.step), draft.program.termination)
    with Stage("the checker of the plan found", can_be_cut=False):
        return replace(planning.laid_out(outcome), work=draft.work)
    return replace(planning.nothing_found(), work=draft.work)


class GraphPlanning:
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
            before_offload(asked.limits, asked.host),
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
        """What was found, checked: with its results on top of operands where that lowers its peak."""
        found, offloads, operands = (
            outcome.require(),
            () if stored is None else stored.offloads,
            self.asked.operands,
        )
        if operands is None:
            return self.ended(outcome, stored)
        planning, rewritten, moved = self, None, offloads
        made = self.beside(found, offloads)
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
            planning = GraphPlanning(graph, operands.pricing(graph), asked)
            moved = offloads_after(self.graph, graph, found.sequence, offloads)
            made = planning.beside(found, moved)
        ended = outcome.termination
        if ended.best == found.peak_with_workspace_bytes:
            ended = replace(ended, best=made.peak_with_workspace_bytes)
        elif ended.best == found.seconds:
            # A result that has room of its own can be faster than one on its operand, and sums differ by rounding.
            bound = None if ended.bound is None else min(ended.bound, made.seconds)
            ended = replace(ended, best=made.seconds, bound=bound)
        outcome = replace(outcome, value=made, termination=ended)
        if stored is not None:
            exposed = made.seconds - planning.step.sequence_seconds(found.sequence)
            stored = replace(stored, planned=made, offloads=moved, exposed_s=exposed)
        return replace(planning.ended(outcome, stored), rewritten=rewritten, offloads=offloads)

    def beside(self, found: PlannedSequence, offloads: Sequence[Offload]) -> PlannedSequence:
        """What a sequence with offloads comes to in the graph as it is."""
        evaluator, host, exposed = Evaluator(self.step, found.sequence), self.asked.host, 0.0
        placed = offloaded(evaluator, offloads)
        if offloads and host is not None:
            nbytes = [self.step.moved_bytes(offload.storage) for offload in offloads]
            clock = OffloadClock.of(evaluator, host.out, host.back)
            exposed = clock.play([offload.positions for offload in offloads], nbytes).exposed_s
        return replace(
            found,
            peak_bytes=placed.peak_without_workspace,
            peak_with_workspace_bytes=placed.peak,
            seconds=evaluator.seconds + exposed,
        )

    def ended(self, outcome: Outcome[PlannedSequence], stored: OffloadPlan | None = None) -> GraphPlan:
        """A legal sequence: as a draft where one is asked for, with its stays where it has any, else laid out; and checked."""
        if stored is not None:
            return self.checked(outcome, None, stored)
        if not self.asked.is_draft or self.whole is not None:
            return self.laid_out(outcome)
        program = self._program(outcome)
        schedule = Schedule.from_nodes(self.graph, program.sequence, self.asked.bodies)
        return GraphPlan(program, schedule, is_draft=True, work=outcome.work)

    def laid_out(self, outcome: Outcome[PlannedSequence]) -> GraphPlan:
        """A sequence, laid out and checked; steps may be moved for the layout."""
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
        return self.checked(outcome, arena)

    def stored(self, outcome: Outcome[PlannedSequence]) -> Outcome[OffloadPlan] | None:
        """A better plan with offloads; None where none is found, or none is asked for."""
        search, host = self.search, self.asked.host
        if host is None:
            return None
        if self.whole is not None:
            # State that is away between two steps is stored after the updates, where a copy can fail.
            host = replace(host, closed_from=self.whole.first_write, may_be_between=frozenset())
        name = search.strategy_name
        choose: Choose = peer("strategies", name).choose_offload if name in WITH_OFFLOADS else choose_offload
        if host.may_be_between:
            choose = partial(choose_with_state_between, choose=choose)
        found = offload_after(search, outcome, host, self.limits, choose)
        plan = found.require()
        if not plan.offloads:
            return None
        self.check(plan.planned.sequence)
        return found

    def nothing_found(self) -> GraphPlan:
        """The order that there is in any case, checked."""
        return self.on_operands(self.search.nothing_found(), None)

    def checked(
        self,
        outcome: Outcome[PlannedSequence],
        arena: PlannedArena | None,
        stored: OffloadPlan | None = None,
    ) -> GraphPlan:
        """A sequence, with its layout or its offloads if there are any, as the entry of a plan file and checked."""
        graph, step, asked, whole = self.graph, self.step, self.asked, self.whole
        if stored is None:
            # Bodies of loops may have stays where the graph around them has none.
            found = outcome.require()
            stored = OffloadPlan(found, host_bytes=offloaded(Evaluator(step, found.sequence)).peak_host_bytes)
        program = self._program(outcome, arena)
        made, extra, bounds = program.predictions, 0, step if whole is None else whole.step
        if whole is not None:
            # How much higher waiting and saving lift the peak before anything is recomputed.
            waiting = PlannedSequence.evaluate(bounds, whole.order, "atomic").peak_with_workspace_bytes
            extra = max(waiting - made.baseline_peak_with_workspace_bytes, 0)
        least = [bounds.lower_bound_bytes, bounds.order_lower_bound_bytes]
        least = [bounds.least_with_offloads(nbytes, stored.offloads) for nbytes in least]
        predictions = replace(
            made,
            lower_bound_bytes=least[0],
            order_lower_bound_bytes=least[1],
            saved_bytes=0 if whole is None else whole.saved_bytes,
            atomic_extra_bytes=extra,
            host_bytes=stored.host_bytes,
            exposed_seconds=stored.exposed_s,
        )
        program = replace(
            program,
            fingerprint=fingerprint(graph),
            predictions=predictions,
            offloads=stored.offloads,
            saved=() if whole is None else whole.saved,
        )
        schedule = check_program(
            program,
            graph,
            step,
            self.pricing.registry,
            atomic=asked.atomic,
            binding=self.pricing.binding,
        )
        most = max(self.search.allowed, made.baseline_peak_with_workspace_bytes)
        if whole is None and predictions.peak_with_workspace_bytes > most:
            raise VerifyError("the search returned a plan above budget and baseline")
        if program.offloads and asked.host is not None:
            program = replace(program, copies=copies_record(step, schedule, program.offloads, asked.host))
        return GraphPlan(program, schedule, work=outcome.work)

    def _program(
        self, outcome: Outcome[PlannedSequence], arena: PlannedArena | None = None
    ) -> PlannedProgram:
        """The entry of a plan file, as the search sees it."""
        asked, peak = self.asked, outcome.require().peak_with_workspace_bytes
        return planned_program(
            self.graph,
            self.step,
            outcome,
            budget_bytes=peak if asked.budget.is_min else self.search.allowed,
            role=asked.role,
            assumed=self.pricing.prices(self.graph).assumed,
            bodies=body_orders(asked.bodies),
            arena=arena,
        )

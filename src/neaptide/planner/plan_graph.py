"""Plans one graph for a budget: compile, search, lay out, record, judge."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.analysis.legality import check_schedule
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.ir.serial import fingerprint
from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason
from neaptide.planner.arena_order import PlannedArena, settle_arena
from neaptide.planner.atomic import AtomicStep, atomic_step, check_atomic
from neaptide.planner.budget import Budget
from neaptide.planner.failed_stages import attempt
from neaptide.planner.graph_search import DEFAULT_STRATEGY, GraphSearch, check_strategy
from neaptide.planner.judge_plan import judge_program
from neaptide.planner.objective import PlannedSequence
from neaptide.planner.portfolio import bounded_ending
from neaptide.planner.random_states import random_state_bytes
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.curve.least_memory import LEAST_MEMORY
from neaptide.planner.recompute.recomputations import recompute_moves
from neaptide.planner.record import planned_program
from neaptide.planner.strategies import canonical_name
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import AssumedBytes, PlannedProgram
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem, compile_problem

_RANDOM_STATE_SECONDS: Final = (
    2e-5  # two states read and two put back, about 15 µs, and the context around them
)


@dataclass(frozen=True)
class GraphCosts:
    """What is known of a graph's costs, as plain numbers.

    Attributes:
        seconds: by node.
        workspace: scratch bytes by node id, where there are any.
        storage_bytes: sizes by storage id that replace the recorded ones.
        are_measured: whether they were taken on this machine.
        described: one line for reports.
    """

    seconds: Sequence[float]
    workspace: Mapping[int, int]
    storage_bytes: Mapping[int, int]
    are_measured: bool
    described: str


@dataclass(frozen=True)
class GraphPlan:
    """The plan that was found for a graph.

    Attributes:
        program: the entry of the plan file.
        schedule: the order in which the nodes run.
    """

    program: PlannedProgram
    schedule: Schedule


def compile_step_problem(
    graph: Graph, registry: OpRegistry, costs: GraphCosts, *, allow_nondeterministic: bool = False
) -> StepProblem:
    """The integer problem of a graph under given costs."""
    return compile_problem(
        graph,
        registry,
        workspace=costs.workspace,
        storage_bytes=costs.storage_bytes,
        seconds=costs.seconds,
        allow_nondeterministic=allow_nondeterministic,
        random_state_seconds=_RANDOM_STATE_SECONDS,
    )


def plan_graph(
    graph: Graph,
    step: StepProblem,
    registry: OpRegistry,
    costs: GraphCosts,
    budget: Budget,
    limits: Limits,
    *,
    role: str,
    strategy_name: str = DEFAULT_STRATEGY,
    budget_bytes: int | None = None,
    atomic: bool = False,
    allow_nondeterministic: bool = False,
    interrupt: threading.Event | None = None,
    own: PlannedSequence | None = None,
) -> GraphPlan:
    """Search for a schedule of a graph within a budget, and check what was found.

    Args:
        graph: the program; `step` is the same as integers.
        step: the problem to search.
        registry: what the operations mean.
        costs: those that `step` was made with.
        budget: what is asked for; a share is of the predicted baseline peak with workspace. One that limits
            nothing gives the lowest peak found by order alone.
        limits: of the search.
        role: of the program in its plan.
        strategy_name: `default` for the portfolio, or one of `strategies.NAMES`.
        budget_bytes: overrides the bytes that the budget resolves to (programs of one step share a limit).
        atomic: keep updates behind everything that can fail; see `planner.atomic`.
        allow_nondeterministic: as `step` was compiled: repetitions may give other bits.
        interrupt: set it to get the best so far.
        own: the schedule that the user wrote, with activation checkpointing of his own; what the portfolio finds is
            never worse.

    Returns:
        Always a plan: the best found, and judged. Whether it is within the budget is in its outcome and predictions.

    Raises:
        UsageError: no such strategy.
        PlanError: not even program order stands before the judge (a fault of ours).
    """
    check_strategy(strategy_name, atomic=atomic)
    allowed = (
        budget.resolve(baseline(step).peak_with_workspace_bytes) if budget_bytes is None else budget_bytes
    )
    whole = atomic_step(step, evaluate_storage_bytes(graph, None, costs.storage_bytes)) if atomic else None

    def check(sequence: Sequence[int]) -> None:
        schedule = Schedule.from_nodes(graph, sequence)
        check_schedule(graph, schedule, registry, allow_nondeterministic=allow_nondeterministic)
        if whole is not None:
            check_atomic(whole, sequence)

    search = GraphSearch(
        step, whole, budget, allowed, limits, canonical_name(strategy_name), own, check, interrupt
    )

    def judged(outcome: Outcome[PlannedSequence], arena: PlannedArena | None) -> GraphPlan:
        program = planned_program(
            step,
            outcome,
            fingerprint=fingerprint(graph),
            budget_bytes=outcome.require().peak_with_workspace_bytes if budget.is_min else allowed,
            role=role,
            name=graph.name,
            arena=arena,
            random_state_bytes=random_state_bytes(graph, outcome.require().sequence),
            assumed=AssumedBytes(
                tuple(sorted(costs.workspace.items())), tuple(sorted(costs.storage_bytes.items()))
            ),
        )
        if whole is not None:
            program = _with_atomic_cost(program, whole)
        schedule = judge_program(
            program, graph, step, registry, atomic=atomic, allow_nondeterministic=allow_nondeterministic
        )
        least = program.predictions.baseline_peak_with_workspace_bytes
        if whole is None and program.predictions.peak_with_workspace_bytes > max(allowed, least):
            raise VerifyError("the search returned a plan above budget and baseline")
        return GraphPlan(program, schedule)

    def settled() -> GraphPlan:
        return judged(*_settled(search, graph, registry, costs, allow_nondeterministic))

    return attempt("the judge of the plan found", settled, lambda: judged(search.nothing_found(), None))


def _settled(
    search: GraphSearch,
    graph: Graph,
    registry: OpRegistry,
    costs: GraphCosts,
    allow_nondeterministic: bool,
) -> tuple[Outcome[PlannedSequence], PlannedArena]:
    """What a search finds, laid out; steps may be moved for that."""
    outcome, step, limits = search.run(), search.step, search.limits
    found = outcome.require()
    unmoved = PlannedArena(found.sequence, 0, 0)
    arena = attempt(
        "the layout of the plan",
        lambda: settle_arena(
            graph,
            step,
            registry,
            costs.storage_bytes,
            found.sequence,
            Limits(limits.time_s, None, limits.seed),
            search.interrupt,
            may_move=search.whole is None,
            allow_nondeterministic=allow_nondeterministic,
        ),
        lambda: unmoved,
    )
    if arena.sequence == found.sequence:
        return outcome, arena
    return attempt(
        "what is proved of the plan laid out",
        lambda: (_moved(search, outcome, arena.sequence), arena),
        lambda: (outcome, unmoved),
    )


def _moved(
    search: GraphSearch, outcome: Outcome[PlannedSequence], sequence: tuple[int, ...]
) -> Outcome[PlannedSequence]:
    """The outcome of a search whose plan has been moved for its arena, and what is known of it then."""
    step, found = search.step, outcome.require()
    orders = tuple(move for move in found.moves if not move.is_recomputation)
    moves = (*orders, *recompute_moves(Evaluator(step, sequence)))
    moved = replace(PlannedSequence.evaluate(step, sequence, found.strategy), moves=moves)
    if search.longest() is not None:
        ending = _ending_of_moved_peak(outcome, moved)
    else:
        ending = _ending_of_moved(outcome, moved, step, search.allowed, search.limits, search.interrupt)
    return replace(outcome, value=moved, termination=ending)


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


def _ending_of_moved_peak(outcome: Outcome[PlannedSequence], moved: PlannedSequence) -> Termination:
    """What is known of the peak of a plan whose steps have been moved: nothing where the order is another."""
    ended, before = outcome.termination, outcome.require()
    if tuple(dict.fromkeys(before.sequence)) == tuple(dict.fromkeys(moved.sequence)):
        return replace(ended, best=moved.peak_with_workspace_bytes)
    reason = TerminationReason.FEASIBLE if ended.reason is TerminationReason.OPTIMAL else ended.reason
    is_whole = ended.reason is TerminationReason.INFEASIBLE or LEAST_MEMORY not in ended.detail
    detail = ended.detail if is_whole else LEAST_MEMORY
    return Termination(reason, ended.limit, detail, moved.peak_with_workspace_bytes)


def _ending_of_moved(
    outcome: Outcome[PlannedSequence],
    moved: PlannedSequence,
    step: StepProblem,
    allowed: int,
    limits: Limits,
    interrupt: threading.Event | None,
) -> Termination:
    """What is known of the time of a plan whose steps have been moved: a bound is one of its own order."""
    ended, before = outcome.termination, outcome.require()
    is_timed = before.peak_with_workspace_bytes <= allowed and len(before.sequence) > step.node_count
    has_moved = tuple(dict.fromkeys(before.sequence)) != tuple(dict.fromkeys(moved.sequence))
    if ended.bound is None or not is_timed or not has_moved:
        is_of_peak = ended.best == before.peak_with_workspace_bytes
        return replace(ended, best=moved.peak_with_workspace_bytes) if is_of_peak else ended
    guard = LimitGuard(Limits(limits.time_s), interrupt)
    proved = recompute_bound(step, allowed, sequence=moved.sequence, guard=guard)
    interrupted = ended.reason is TerminationReason.INTERRUPTED
    return bounded_ending(step, moved, proved, ended.limit, interrupted=interrupted)

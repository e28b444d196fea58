"""Plans one graph for a budget: compile, search, check, record."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.analysis.legality import check_schedule
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.errors import UsageError, VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.ir.serial import fingerprint
from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason
from neaptide.planner.arena_order import settle_arena
from neaptide.planner.atomic import AtomicStep, atomic_step, check_atomic
from neaptide.planner.budget import Budget
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.own_schedule import no_worse_than
from neaptide.planner.portfolio import bounded_ending, plan_sequence
from neaptide.planner.recompute.bounds.certificate import recompute_bound
from neaptide.planner.recompute.curve.least_memory import LEAST_MEMORY, least_memory
from neaptide.planner.recompute.recomputations import recompute_moves
from neaptide.planner.record import planned_program
from neaptide.planner.strategies import NAMES, canonical_name, strategy
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import PlannedProgram
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem, compile_problem

DEFAULT_STRATEGY = "default"
STRATEGIES = (DEFAULT_STRATEGY, *NAMES)
_FREE_STRATEGY = "best_order"  # by order alone: what is done without a budget
_ATOMIC_STRATEGY = "greedy_recompute"  # the one that keeps to the order it is started from
_RANDOM_STATE_SECONDS = 2e-5  # two states read and two put back, about 15 µs, and the context around them
_RANDOM_STATE_BYTES: Final = {"cpu": 5056, "cuda": 16}


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
        Always a plan: the best found. Whether it is within the budget is in its outcome and predictions.

    Raises:
        UsageError: no such strategy.
        VerifyError: the search returned an illegal schedule (a fault of ours).
    """
    check_strategy(strategy_name, atomic=atomic)
    before = baseline(step)
    allowed = budget.resolve(before.peak_with_workspace_bytes) if budget_bytes is None else budget_bytes
    whole: AtomicStep | None = None
    if atomic:
        whole = atomic_step(step, evaluate_storage_bytes(graph, None, costs.storage_bytes))

    longest = budget.resolve_latency(before.seconds) if budget.peak is None else None
    if longest is not None:
        outcome = least_memory(
            step if whole is None else whole.step,
            longest,
            limits,
            interrupt,
            strategy_name=None if canonical_name(strategy_name) == DEFAULT_STRATEGY else strategy_name,
            order=None if whole is None else whole.order,
            known=() if own is None or whole is not None else (own,),
        )
    elif whole is not None:
        problem = PlanningProblem(whole.step, allowed, start=whole.order)
        outcome = strategy(_ATOMIC_STRATEGY)(problem, limits, interrupt)
    elif strategy_name != DEFAULT_STRATEGY:
        outcome = strategy(strategy_name)(PlanningProblem(step, allowed), limits, interrupt)
    else:
        if budget.is_none:
            outcome = strategy(_FREE_STRATEGY)(PlanningProblem(step, allowed), limits, interrupt)
        else:
            outcome = plan_sequence(step, allowed, limits, interrupt=interrupt)
        if own is not None:
            outcome = no_worse_than(own, outcome, step, allowed, limits, interrupt)
    found = outcome.require()
    arena = settle_arena(
        graph,
        step,
        registry,
        costs.storage_bytes,
        found.sequence,
        Limits(limits.time_s, None, limits.seed),
        interrupt,
        may_move=whole is None,
        allow_nondeterministic=allow_nondeterministic,
    )
    if arena.sequence != found.sequence:
        evaluated = PlannedSequence.evaluate(step, arena.sequence, found.strategy)
        orders = tuple(move for move in found.moves if not move.is_recomputation)
        moves = (*orders, *recompute_moves(Evaluator(step, arena.sequence)))
        found = replace(evaluated, moves=moves)
        if longest is not None:
            ending = _ending_of_moved_peak(outcome, found)
        else:
            ending = _ending_of_moved(outcome, found, step, allowed, limits, interrupt)
        outcome = replace(outcome, value=found, termination=ending)
    schedule = Schedule.from_nodes(graph, found.sequence)
    check_schedule(graph, schedule, registry, allow_nondeterministic=allow_nondeterministic)
    program = planned_program(
        step,
        outcome,
        fingerprint=fingerprint(graph),
        budget_bytes=allowed,
        role=role,
        name=graph.name,
        arena=arena,
        random_state_bytes=random_state_bytes(graph, found.sequence),
    )
    if whole is not None:
        check_atomic(whole, found.sequence)
        program = _with_atomic_cost(program, whole)
    elif program.predictions.peak_with_workspace_bytes > max(
        allowed, program.predictions.baseline_peak_with_workspace_bytes
    ):
        raise VerifyError("the search returned a plan above budget and baseline")
    return GraphPlan(program, schedule)


def random_state_bytes(graph: Graph, sequence: Sequence[int]) -> int:
    """Bytes on the host of the states under which draws of a sequence are made again, were they kept all at once.

    A state is kept from the first draw to its last repetition. PyTorch's generator has 5,056 bytes on the CPU
    (mt19937) and 16 on CUDA (Philox: seed and offset). O(length of the sequence).
    """
    again = {node for node, runs in Counter(sequence).items() if runs > 1}
    streams = (graph.nodes[node].effects.rng for node in again)
    return sum(
        _RANDOM_STATE_BYTES.get(stream.partition(":")[0], 0) for stream in streams if stream is not None
    )


def check_strategy(name: str, *, atomic: bool) -> None:
    """Refuse the name of a strategy that there is not, or that cannot do what is asked.

    Raises:
        UsageError: naming those that can.
    """
    if canonical_name(name) not in STRATEGIES:
        raise UsageError(
            f"no strategy is called {name!r}", next_step=f"choose one of {', '.join(STRATEGIES)}"
        )
    if atomic and canonical_name(name) not in (DEFAULT_STRATEGY, _ATOMIC_STRATEGY):
        raise UsageError(
            f"the strategy {name!r} cannot make an atomic plan",
            why="it may place updates before operations that can fail",
            next_step=f"leave the strategy out, or use {_ATOMIC_STRATEGY!r}",
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


def _ending_of_moved_peak(outcome: Outcome[PlannedSequence], moved: PlannedSequence) -> Termination:
    """What is known of the peak of a plan whose steps have been moved: nothing where the order is another."""
    ended, before = outcome.termination, outcome.require()
    if tuple(dict.fromkeys(before.sequence)) == tuple(dict.fromkeys(moved.sequence)):
        return replace(ended, best=moved.peak_with_workspace_bytes)
    reason = TerminationReason.FEASIBLE if ended.reason is TerminationReason.OPTIMAL else ended.reason
    detail = ended.detail if ended.reason is TerminationReason.INFEASIBLE else LEAST_MEMORY
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
        return ended
    guard = LimitGuard(Limits(limits.time_s), interrupt)
    proved = recompute_bound(step, allowed, sequence=moved.sequence, guard=guard)
    interrupted = ended.reason is TerminationReason.INTERRUPTED
    return bounded_ending(step, moved, proved, ended.limit, interrupted=interrupted)

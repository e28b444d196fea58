"""Plans one graph for a budget: compile, search, check, record."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neaptide.analysis.legality import check_schedule
from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.ir.serial import fingerprint
from neaptide.outcome import Limits, Outcome
from neaptide.plans import PlannedProgram
from neaptide.planner.atomic import atomic_order
from neaptide.planner.budget import Budget
from neaptide.planner.objective import PlannedSequence, PlanningProblem
from neaptide.planner.portfolio import plan_sequence
from neaptide.planner.record import planned_program
from neaptide.planner.strategies import NAMES, strategy
from neaptide.planner.strategies.program_order import baseline
from neaptide.schedule.problem import StepProblem, compile_problem

DEFAULT_STRATEGY = "default"
STRATEGIES = (DEFAULT_STRATEGY, *NAMES)
_BISECTIONS = 7  # of the budget, when time is limited and memory is to be least: within 1 % of the range


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
    """A graph and the plan that was found for it.

    Attributes:
        graph: as captured.
        step: as integers.
        outcome: of the search.
        program: the entry of the plan file.
        schedule: the order in which the nodes run.
    """

    graph: Graph
    step: StepProblem
    outcome: Outcome[PlannedSequence]
    program: PlannedProgram
    schedule: Schedule


def compile_step_problem(graph: Graph, registry: OpRegistry, costs: GraphCosts) -> StepProblem:
    """The integer problem of a graph under given costs."""
    return compile_problem(
        graph,
        registry,
        workspace=costs.workspace,
        storage_bytes=costs.storage_bytes,
        seconds=costs.seconds,
    )


def plan_graph(
    graph: Graph,
    step: StepProblem,
    registry: OpRegistry,
    budget: Budget,
    limits: Limits,
    *,
    role: str,
    strategy_name: str = DEFAULT_STRATEGY,
    budget_bytes: int | None = None,
    atomic: bool = False,
    interrupt: threading.Event | None = None,
) -> GraphPlan:
    """Search for a schedule of a graph within a budget, and check what was found.

    Args:
        graph: the program; `step` is the same as integers.
        step: the problem to search.
        registry: what the operations mean.
        budget: what is asked for; a share is of the predicted baseline peak with workspace.
        limits: of the search.
        role: of the program in its plan.
        strategy_name: `default` for the portfolio, or one of `strategies.NAMES`.
        budget_bytes: overrides the bytes that the budget resolves to (programs of one step share a limit).
        atomic: keep updates behind everything that can fail.
        interrupt: set it to get the best so far.

    Returns:
        Always a plan: the best found. Whether it is within the budget is in its outcome and predictions.

    Raises:
        VerifyError: the search returned an illegal schedule (a fault of ours).
    """
    before = baseline(step)
    allowed = budget.resolve(before.peak_with_workspace_bytes) if budget_bytes is None else budget_bytes

    def search(bytes_allowed: int) -> Outcome[PlannedSequence]:
        if atomic:
            order = atomic_order(step)
            problem = PlanningProblem(step, bytes_allowed, start=order)
            return strategy("greedy_recompute")(problem, limits, interrupt)
        if strategy_name == DEFAULT_STRATEGY:
            return plan_sequence(step, bytes_allowed, limits, interrupt=interrupt)
        return strategy(strategy_name)(PlanningProblem(step, bytes_allowed), limits, interrupt)

    longest = budget.resolve_latency(before.seconds)
    if budget.peak is None and longest is not None:
        outcome = _least_memory(search, longest, step.lower_bound_bytes, before.peak_with_workspace_bytes)
    else:
        outcome = search(allowed)
    found = outcome.require()
    schedule = Schedule.from_nodes(graph, found.sequence)
    check_schedule(graph, schedule, registry)
    program = planned_program(
        step,
        outcome,
        fingerprint=fingerprint(graph),
        budget_bytes=allowed,
        role=role,
        name=graph.name,
    )
    if not atomic and program.predictions.peak_with_workspace_bytes > max(
        allowed, program.predictions.baseline_peak_with_workspace_bytes
    ):
        raise VerifyError("the search returned a plan above budget and baseline")
    return GraphPlan(graph, step, outcome, program, schedule)


def _least_memory(search: object, longest: float, low: int, high: int) -> Outcome[PlannedSequence]:
    """The lowest peak whose time is within `longest`, by bisection of the budget; time falls as memory grows."""
    assert callable(search)
    best: Outcome[PlannedSequence] = search(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) // 2
        outcome: Outcome[PlannedSequence] = search(middle)
        found = outcome.require()
        if found.seconds <= longest and found.peak_with_workspace_bytes <= middle:
            best, high = outcome, middle
        else:
            low = middle
    return best

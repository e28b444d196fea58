"""Activation checkpointing as the user placed it, as a sequence: what eager runs, and how many bytes that takes.

A checkpointed call keeps what it is given and nothing that it makes; when its backward begins, its forward runs again
up to the last tensor that the backward needs (PyTorch's early stop), and the backward uses what that run made.
"""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.errors import VerifyError
from neaptide.ir.graph import Graph
from neaptide.ir.registry import OpRegistry
from neaptide.ir.schedule import Schedule
from neaptide.schedule.changes import Insert
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import StepProblem


def checkpointed_sequence(
    graph: Graph,
    problem: StepProblem,
    registry: OpRegistry,
    calls: Sequence[Sequence[int]],
) -> tuple[int, ...]:
    """Program order with each checkpointed call run again before its backward. O(calls x size of the graph).

    A call that cannot be run twice with the same result (eager may do it all the same) is left as captured. `calls` are
    nodes of forwards, ascending; one of the backward after them is where the call runs again at the latest.
    """
    evaluator = Evaluator(problem)
    sequence = evaluator.sequence()
    for call in reversed(calls):
        change = _again(problem, call)
        if change is None:
            continue
        evaluator.apply(change)
        longer = evaluator.sequence()
        schedule = Schedule.from_nodes(graph, longer)
        try:
            check_schedule(graph, schedule, registry)
        except VerifyError:
            evaluator.undo()
        else:
            sequence = longer
    return tuple(sequence)


def _again(problem: StepProblem, call: Sequence[int]) -> Insert | None:
    """The second run of a call; None when nothing after it needs what it makes."""
    inside = {node for node in call if problem.phases[node] == "forward"}
    made = {storage for node in inside for storage in problem.created[node]}
    first, last = min(set(call) - inside, default=problem.node_count), -1
    for storage in made:
        for node in problem.roles[storage]:
            if node not in inside and problem.phases[node] != "forward":
                first = min(first, node)
                last = max(
                    last, *(n for n in (problem.creator[storage], *problem.writers[storage]) if n in inside)
                )
    again = tuple(node for node in call if node in inside and node <= last and not problem.refusals[node])
    return Insert(again, first) if again and first < problem.node_count else None

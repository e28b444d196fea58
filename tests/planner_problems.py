"""What the planner tests share: problems of made-up steps, the judge of plans, and brute force."""

from __future__ import annotations

import heapq

from neaptide.analysis.legality import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.corpus.training_steps import toy_registry
from neaptide.ir.schedule import Schedule
from neaptide.schedule.problem import compile_problem


def compiled(made, workspace=None):
    return compile_problem(made.graph, made.registry, workspace=workspace, seconds=made.seconds)


def judge(graph, planned, workspace=None, registry=None):
    """A plan is legal and its bytes are those of the reference."""
    schedule = Schedule.from_nodes(graph, planned.sequence)
    check_schedule(graph, schedule, registry or toy_registry())
    profile = memory_profile(graph, schedule, workspace=workspace)
    assert planned.peak_bytes == profile.peak_bytes
    assert planned.peak_with_workspace_bytes == profile.peak_with_workspace_bytes


def least_seconds(step, budget, most=2):
    """Least seconds over all sequences in which first executions keep program order; None when none fits.

    For graphs whose nodes make one storage each; shortest paths over (nodes run, storages held, executions).
    """
    count = step.node_count
    needs = [
        {c for v in step.operands[n] if (c := step.creator[step.value_storage[v]]) >= 0} for n in range(count)
    ]
    size = [step.storage_bytes[step.created[n][0]] for n in range(count)]
    goal = {c for v in step.outputs if (c := step.creator[step.value_storage[v]]) >= 0}
    room = budget - step.resident_bytes
    start = (0, frozenset(), (0,) * count)
    best = {start: 0.0}
    heap = [(0.0, 0, start)]
    pushed = 0
    while heap:
        seconds, _, state = heapq.heappop(heap)
        if seconds > best[state]:
            continue
        first, held, runs = state
        if first == count and goal <= held:
            return seconds
        following = [(seconds, (first, held - {node}, runs)) for node in held]
        used = sum(size[node] for node in held)
        for node in range(min(first + 1, count)):
            fits = used + size[node] + step.workspace[node] <= room
            if fits and runs[node] < most and node not in held and needs[node] <= held:
                again = (*runs[:node], runs[node] + 1, *runs[node + 1 :])
                following.append((seconds + step.seconds[node], (max(first, node + 1), held | {node}, again)))
        for reached, after in following:
            if reached < best.get(after, float("inf")):
                best[after] = reached
                pushed += 1
                heapq.heappush(heap, (reached, pushed, after))
    return None

"""What the planner tests share: problems of made-up steps, the checker of plans, and brute force."""

from __future__ import annotations

import heapq
import json
import random

from neaptide.analysis.legality.schedule import check_schedule
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.ir.schedule import Schedule
from neaptide.planner.recompute.units import recompute_units
from neaptide.schedule.evaluate import Evaluator
from neaptide.schedule.problem import compile_problem
from neaptide.schedule.recompute_form import InstanceNode, from_json, from_nodes
from neaptide_corpus.recompute_forms import recompute_form
from neaptide_corpus.training_steps import toy_registry


def compiled(made, workspace=None):
    return compile_problem(made.graph, made.registry, workspace=workspace, seconds=made.seconds)


def check_sequence(graph, planned, workspace=None, registry=None):
    """A plan is legal and its bytes are those of the reference."""
    schedule = Schedule.from_nodes(graph, planned.sequence)
    check_schedule(graph, schedule, registry or toy_registry())
    profile = memory_profile(graph, schedule, workspace=workspace)
    assert planned.peak_bytes == profile.peak_bytes
    assert planned.peak_with_workspace_bytes == profile.peak_with_workspace_bytes


def least_seconds(step, budget, most=2, *, in_stages=False):
    """Least seconds over all sequences in which first executions keep program order; None when none fits.

    For graphs whose nodes make one storage each; shortest paths over (nodes run, storages held, executions). With
    `most` None a node may run any number of times; with `in_stages`, repetitions between two first executions run in
    program order.
    """
    count = step.node_count
    needs = [
        {c for v in step.operands[n] if (c := step.creator[step.value_storage[v]]) >= 0} for n in range(count)
    ]
    size = [step.storage_bytes[step.created[n][0]] for n in range(count)]
    goal = {c for v in step.outputs if (c := step.creator[step.value_storage[v]]) >= 0}
    room = budget - step.persistent_bytes
    start = (0, frozenset(), (0,) * count, -1)
    best = {start: 0.0}
    heap = [(0.0, 0, start)]
    pushed = 0
    while heap:
        seconds, _, state = heapq.heappop(heap)
        if seconds > best[state]:
            continue
        first, held, runs, latest = state
        if first == count and goal <= held:
            return seconds
        following = [(seconds, (first, held - {node}, runs, latest)) for node in held]
        used = sum(size[node] for node in held)
        for node in range(latest + 1 if in_stages else 0, min(first + 1, count)):
            fits = used + size[node] + step.workspace[node] <= room
            if fits and (most is None or runs[node] < most) and node not in held and needs[node] <= held:
                again = runs if most is None else (*runs[:node], runs[node] + 1, *runs[node + 1 :])
                after = (
                    max(first, node + 1),
                    held | {node},
                    again,
                    node if in_stages and node < first else -1,
                )
                following.append((seconds + step.seconds[node], after))
        for reached, after in following:
            if reached < best.get(after, float("inf")):
                best[after] = reached
                pushed += 1
                heapq.heappush(heap, (reached, pushed, after))
    return None


def random_instance(seed, count):
    """Nodes that each read one or two earlier ones."""
    draw = random.Random(seed)
    nodes = []
    for index in range(count):
        deps = sorted(draw.sample(range(index), min(index, draw.randint(1, 2))))
        last = index == count - 1
        nodes.append(
            InstanceNode(
                f"n{index}",
                draw.randint(0, 9),
                deps,
                seconds=float(draw.randint(1, 9)),
                out=last or draw.random() < 0.15,
                workspace=draw.choice((0, 0, 3)),
            )
        )
    return from_nodes(nodes)


def random_chain(seed, count):
    """A forward chain and its backward, each node of which reads what its forward counterpart made."""
    draw = random.Random(seed)
    nodes = [
        InstanceNode(f"f{i}", draw.randint(1, 9), [i - 1] if i else [], seconds=float(draw.randint(1, 9)))
        for i in range(count)
    ]
    for i in range(count):
        deps = [count - 1 + i, count - 1 - i] if i else [count - 1]
        seconds = float(draw.randint(1, 9))
        nodes.append(InstanceNode(f"b{i}", draw.randint(1, 4), deps, seconds=seconds, out=i == count - 1))
    return from_nodes(nodes)


def instance(family, nodes=60, seed=0):
    """A generated recompute form."""
    return from_json(json.dumps(recompute_form(family, nodes, seed)))


def there_and_back(seed):
    """A small chain whose backward reads what the forward made, for brute force."""
    nodes = [
        InstanceNode(f"f{k}", 3 + (seed * 7 + k * 5) % 6, [k - 1] if k else [], seconds=1.0 + k)
        for k in range(4)
    ]
    for k in range(4):
        deps = [3 - k, *([3 + k] if k else [])]
        nodes.append(InstanceNode(f"b{k}", 2, deps, seconds=1.0, phase="bwd", out=k == 3))
    return from_nodes(nodes)


def units_of(step, found):
    """What a plan makes again."""
    return recompute_units(Evaluator(step, found.sequence))

"""Small recompute instances whose plans are all known, for the exact strategies."""

from __future__ import annotations

import random

from neaptide.planner.strategies import program_order
from neaptide.schedule.recompute_form import InstanceNode, from_nodes


def chain(seed, count):
    """A forward chain, here and there with a skip, and its backward; each node reads what its forward node made."""
    draw = random.Random(seed)
    nodes = [
        InstanceNode(
            f"f{i}",
            draw.randint(1, 9),
            sorted({max(i - 1, 0), max(i - draw.randint(1, 3), 0)}) if i else [],
            seconds=float(draw.randint(1, 9)),
            workspace=draw.choice((0, 0, 2)),
        )
        for i in range(count)
    ]
    for i in range(count - 1):
        deps = [count - 1 + i, count - 2 - i]
        nodes.append(
            InstanceNode(
                f"b{i}", draw.randint(1, 4), deps, seconds=float(draw.randint(1, 9)), out=i == count - 2
            )
        )
    return from_nodes(nodes)


def tangle(seed, count):
    """Any dependencies, several nodes handed back."""
    draw = random.Random(seed)
    nodes = []
    for index in range(count):
        deps = sorted(draw.sample(range(index), min(index, draw.randint(1, 2))))
        out = index == count - 1 or draw.random() < 0.15
        size, scratch = draw.randint(0, 9), draw.choice((0, 0, 3))
        seconds = float(draw.randint(1, 9))
        nodes.append(InstanceNode(f"n{index}", size, deps, seconds=seconds, out=out, workspace=scratch))
    return from_nodes(nodes)


def cases(number):
    """(step, budget) with budgets between the bound and the peak of program order, where they are not the same."""
    found = []
    seed = 0
    while len(found) < number:
        seed += 1
        step = chain(seed, 4) if seed % 2 else tangle(seed, 7)
        peak = program_order.baseline(step).peak_with_workspace_bytes
        low = step.lower_bound_bytes
        if low < peak:
            found.append((step, random.Random(seed).randint(low, peak - 1)))
    return found

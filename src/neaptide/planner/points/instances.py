"""What a run of a script makes, as storages with lifetimes: the same whenever the same is evicted, whatever the shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from neaptide.errors import LayoutProblemError
from neaptide.planner.points.script import Kind, Script
from neaptide.planner.points.shaped import ShapedProgram
from neaptide.symbolic.stacked import Ints

FIRST = -1
"""The repetition of a first execution."""


@dataclass(frozen=True, slots=True, eq=False)
class Instances:
    """Storages that a run makes. A step is one execution; first executions and repetitions are counted together."""

    nodes: Ints  # by step, what runs
    runs: Ints  # by step, which of `Script.repeated` it is, or `FIRST`
    storages: Ints  # by instance, in order of creation
    starts: Ints  # by instance, the step that makes it
    ends: Ints  # by instance, one past the last step at which it is there
    is_handed_back: NDArray[np.bool_]  # by instance, whether it outlives the run

    def made_at(self) -> Mapping[tuple[int, int], int]:
        """Instances by step and storage."""
        pairs = zip(self.starts.tolist(), self.storages.tolist(), strict=True)
        return {pair: number for number, pair in enumerate(pairs)}


def script_instances(shaped: ShapedProgram, script: Script) -> Instances:
    """All that a run makes, what the caller owns left out. O(nodes + storages + actions).

    A repetition also makes those results of its node that are there already; they end with its step.
    """
    units, problem = shaped.units, shaped.problem
    position_of = units.position_of
    dying: list[list[int]] = [[] for _ in range(problem.node_count + 1)]
    for storage, creator in enumerate(problem.creator):
        if creator >= 0:
            last = max(units.last_use[storage], position_of[creator])
            dying[min(last, problem.node_count)].append(storage)
    steps: list[tuple[int, int]] = []  # what runs, and which repetition that is
    made: list[list[int]] = []  # storage, start and end of each instance
    there: dict[int, int] = {}  # by storage, its instance

    def run(node: int, repetition: int, stays: Collection[int]) -> None:
        for storage in problem.created[node]:
            if storage in stays:
                there[storage] = len(made)
            made.append([storage, len(steps), len(steps) + 1])
        steps.append((node, repetition))

    def end(storage: int) -> None:
        if (number := there.pop(storage, None)) is not None:
            made[number][2] = len(steps)

    repeated = 0
    for position in range(problem.node_count + 1):
        for action in script.actions.get(position, ()):
            if action.kind is Kind.RUN:
                run(action.target, repeated, action.takes)
                repeated += 1
            elif action.kind is Kind.DROP:
                end(action.target)
            else:
                raise LayoutProblemError("a script that stores on the host and loads has no layout")
        if position < problem.node_count:
            node = units.order[position]
            run(node, FIRST, problem.created[node])
            for storage in dying[position]:
                end(storage)
    handed = set(there.values())
    for storage in list(there):
        end(storage)
    nodes, runs = np.array(steps, dtype=np.int64).reshape(-1, 2).T
    storages, starts, ends = np.array(made, dtype=np.int64).reshape(-1, 3).T
    is_handed_back = np.array([number in handed for number in range(len(made))], dtype=np.bool_)
    return Instances(nodes, runs, storages, starts, ends, is_handed_back)

"""What a run of a script makes, as storages with lifetimes: the same whenever the same is evicted, whatever the shape."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Storages that a run makes. A step is one execution; first executions and repetitions are counted together.

    Attributes:
        nodes: by step, what runs.
        runs: by step, which of `Script.repeated` it is, or `FIRST`.
        storages: by instance, in order of creation.
        starts: by instance, the step that makes it.
        ends: by instance, one past the last step at which it is there.
        is_handed_back: by instance, whether it outlives the run.
    """

    nodes: Ints
    runs: Ints
    storages: Ints
    starts: Ints
    ends: Ints
    is_handed_back: NDArray[np.bool_]

    def made_at(self) -> Mapping[tuple[int, int], int]:
        """Instances by step and storage."""
        pairs = zip(self.starts.tolist(), self.storages.tolist(), strict=True)
        return {pair: number for number, pair in enumerate(pairs)}


def script_instances(shaped: ShapedProgram, script: Script) -> Instances:
    """All that a run makes, what the caller owns left out. O(nodes + storages + actions).

    A repetition also makes those results of its node that are there already; they end with its step.

    Args:
        shaped: the program.
        script: of a whole run.

    Raises:
        LayoutProblemError: it stores something on the host, and what comes back is made by no step.
    """
    units, problem = shaped.units, shaped.problem
    position_of = units.position_of
    dying: list[list[int]] = [[] for _ in range(problem.node_count + 1)]
    for storage, creator in enumerate(problem.creator):
        if creator >= 0:
            last = max(units.last_use[storage], position_of[creator])
            dying[min(last, problem.node_count)].append(storage)
    play = _Play()
    for position in range(problem.node_count + 1):
        for action in script.actions.get(position, ()):
            if action.kind is Kind.RUN:
                play.run(action.target, play.repeated)
                play.repeated += 1
                for storage in problem.created[action.target]:
                    play.make(storage, stays=storage in action.takes)
                play.now += 1
            elif action.kind is Kind.DROP:
                play.end(action.target)
            else:
                raise LayoutProblemError("a script that stores on the host and loads has no layout")
        if position < problem.node_count:
            node = units.order[position]
            play.run(node, FIRST)
            for storage in problem.created[node]:
                play.make(storage, stays=True)
            play.now += 1
            for storage in dying[position]:
                play.end(storage)
    handed = set(play.there.values())
    for storage in list(play.there):
        play.end(storage)
    return Instances(
        np.array(play.nodes, dtype=np.int64),
        np.array(play.runs, dtype=np.int64),
        np.array(play.storages, dtype=np.int64),
        np.array(play.starts, dtype=np.int64),
        np.array(play.ends, dtype=np.int64),
        np.array([number in handed for number in range(len(play.storages))], dtype=np.bool_),
    )


class _Play:
    def __init__(self) -> None:
        self.now = self.repeated = 0
        self.nodes: list[int] = []
        self.runs: list[int] = []
        self.storages: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.there: dict[int, int] = {}

    def run(self, node: int, run: int) -> None:
        self.nodes.append(node)
        self.runs.append(run)

    def make(self, storage: int, *, stays: bool) -> None:
        if stays:
            self.there[storage] = len(self.storages)
        self.storages.append(storage)
        self.starts.append(self.now)
        self.ends.append(self.now + 1)

    def end(self, storage: int) -> None:
        number = self.there.pop(storage, None)
        if number is not None:
            self.ends[number] = self.now

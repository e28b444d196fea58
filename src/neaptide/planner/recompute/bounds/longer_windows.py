"""Which longer windows an answer of the joint program breaks, without solving anything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neaptide.linear.arrays import Floats
from neaptide.linear.tolerances import NOTHING
from neaptide.planner.recompute.bounds.joint_program import JointSolution, Window
from neaptide.planner.recompute.bounds.step_tables import StepTables


def broken_windows(
    tables: StepTables, positions: Sequence[int], solution: JointSolution, most: int
) -> list[Window]:
    """The windows over several others whose rules an answer breaks most. O(steps^2 x size of the problem).

    What is used in a window, or held at its end, has to run again to the share that it is not held at the beginning;
    so has, in turn, what a node needs that runs again. Where that is more than runs again in all parts of the window,
    it is broken, by that many seconds.

    Args:
        tables: of the step.
        positions: of the program, ascending.
        solution: its answer.
        most: windows.
    """
    ends = [*positions, len(tables.order)]
    operands = _operands(tables)
    least = NOTHING * float(tables.seconds.sum())
    found: list[tuple[float, Window]] = []
    for k, start in enumerate(positions):
        if k + 2 >= len(ends):
            break
        asked = _asked(tables, ends, k, solution, operands)
        again = np.cumsum(np.stack(solution.again[k:]), axis=0)[1:]
        broken = (np.maximum(asked - again, 0.0) * tables.seconds).sum(axis=1)
        found += [
            (-float(by), (start, end)) for by, end in zip(broken, ends[k + 2 :], strict=True) if by > least
        ]
    return [window for _, window in sorted(found)[:most]]


def _asked(
    tables: StepTables, ends: Sequence[int], k: int, solution: JointSolution, operands: list[list[int]]
) -> Floats:
    """By end of a longer window from the k-th step and by node, the share to which it has to run again."""
    start, count = ends[k], len(tables.order)
    made = tables.made_before(start)
    held = solution.held[k]
    asked = np.zeros((len(tables.position), len(ends) - k - 2))
    for column, end in enumerate(ends[k + 2 :]):
        later = tables.is_output.astype(np.float64) if end == count else solution.held[k + 2 + column]
        wanted = np.maximum(tables.used_within(start, end), later) - held
        storages = np.flatnonzero(made & (wanted > NOTHING))
        np.maximum.at(asked[:, column], tables.creator[storages], wanted[storages])
    for node in tables.order[:start][::-1].tolist():
        share = asked[node]
        if share.any():
            for storage in operands[node]:
                creator = asked[tables.creator[storage]]
                np.maximum(creator, share - held[storage], out=creator)
    return asked.T


def _operands(tables: StepTables) -> list[list[int]]:
    """By node that may run again, storages that another node creates and it needs for that."""
    operands: list[list[int]] = [[] for _ in tables.order]
    for node, storage in zip(*(array.tolist() for array in tables.repeat), strict=True):
        if tables.may_repeat[node] and tables.creator[storage] >= 0:
            operands[node].append(storage)
    return operands

"""When the storages of a joint program's answer are there: what runs again as late as possible, and the bytes of it.

The program knows windows between steps, not the steps inside. Here each repetition is put directly before what needs
it first: a first execution, another repetition, or the step at the window's end across which its result is held. The
bytes at first executions follow; where they are above the budget the program should have had a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from neaptide.linear.arrays import Floats
from neaptide.linear.tolerances import NOTHING
from neaptide.planner.recompute.bounds.joint_program import JointSolution
from neaptide.planner.recompute.bounds.step_tables import StepTables
from neaptide.schedule.evaluate import Ints


def joint_profile(tables: StepTables, positions: Sequence[int], solution: JointSolution) -> Floats:
    """Bytes at each first execution when an answer is carried out; shares count as such.

    O(windows x (storages + needs)).
    """
    count = len(tables.order)
    change = np.zeros(count + 2)
    sizes = tables.sizes.astype(np.float64)
    for window, start, end, later, first, last in _windows(tables, positions, solution):
        if window:
            held, again = solution.held[window - 1], solution.again[window - 1]
            ranks = _ranks(tables, first, last, again)
            across = np.flatnonzero(held > NOTHING)
            _hold(change, start, np.full(len(across), start), held[across] * sizes[across])
            there = np.flatnonzero((held > NOTHING) & ((last >= 0) | (later > NOTHING)))
            until = np.where(later[there] > NOTHING, end - 1, last[there])
            _hold(change, start + 1, until, held[there] * sizes[there])
            for node, rank in ranks.items():
                for storage in tables.step.created[node]:
                    stop = end - 1 if later[storage] > NOTHING else int(last[storage])
                    # What is held as well is there already.
                    share = min(float(again[node]), 1.0 - float(held[storage]))
                    if stop >= rank and share > 0.0:
                        change[rank] += share * sizes[storage]
                        change[stop + 1] -= share * sizes[storage]
        born = np.where(tables.creator >= 0, tables.position[tables.creator], -1)
        new = np.flatnonzero((born >= max(start, 0)) & (born < end))
        until = np.maximum(last[new], born[new])
        _hold(change, born[new], until, sizes[new])
        _hold(change, until + 1, np.full(len(new), end - 1), later[new] * sizes[new])
    scratch = np.array(tables.step.workspace, dtype=np.int64)[tables.order]
    profile: Floats = np.cumsum(change)[:count] + scratch + tables.step.persistent_bytes
    return profile


def joint_repetitions(
    tables: StepTables, positions: Sequence[int], solution: JointSolution, least_share: float
) -> set[tuple[int, int]]:
    """(node, node before whose first execution it runs again) of what an answer repeats.

    The number of nodes stands for the end. What runs again to a smaller share than `least_share` is left out.
    O(windows x (storages + needs)).
    """
    count = len(tables.order)
    found: set[tuple[int, int]] = set()
    for window, _, _, _, first, last in _windows(tables, positions, solution):
        if window:
            again = solution.again[window - 1]
            ranks = _ranks(tables, first, last, np.where(again >= least_share, again, 0.0))
            found.update(
                (node, count if rank == count else int(tables.order[rank])) for node, rank in ranks.items()
            )
    return found


def _windows(
    tables: StepTables, positions: Sequence[int], solution: JointSolution
) -> Iterator[tuple[int, int, int, Floats, Ints, Ints]]:
    """Windows from the first node on: number, begin, end, shares held at the end, first and last use of each storage."""
    count = len(tables.order)
    for window, (start, end) in enumerate(pairwise((-1, *positions, count))):
        first, last = _uses(tables, start + 1, end)
        later = tables.is_output.astype(np.float64) if end == count else solution.held[window]
        yield window, start, end, later, np.where((later > NOTHING) & (first > end), end, first), last


def _uses(tables: StepTables, start: int, end: int) -> tuple[Ints, Ints]:
    """By storage, positions of the first and the last node between two positions that needs it; far off for none."""
    nodes, storages = tables.need
    places = tables.position[nodes]
    inside = (places >= start) & (places < end)
    first = np.full(len(tables.sizes), len(tables.order) + 1, dtype=np.int64)
    last = np.full(len(tables.sizes), -1, dtype=np.int64)
    np.minimum.at(first, storages[inside], places[inside])
    np.maximum.at(last, storages[inside], places[inside])
    return first, last


def _ranks(tables: StepTables, first: Ints, last: Ints, again: Floats) -> dict[int, int]:
    """Where each repetition of a window stands; `first` and `last` uses come to include repetitions."""
    nodes = np.flatnonzero(again > NOTHING)
    ranks: dict[int, int] = {}
    none = len(tables.order) + 1
    for node in nodes[np.argsort(-tables.position[nodes], kind="stable")].tolist():
        rank = min((int(first[s]) for s in tables.made[node]), default=none)
        if rank == none:
            continue
        ranks[node] = rank
        for storage in tables.read_again[node]:
            first[storage] = min(int(first[storage]), rank)
            last[storage] = max(int(last[storage]), rank)
    return ranks


def _hold(change: Floats, start: int | Ints, until: Ints, nbytes: Floats) -> None:
    """Bytes from one position to another, both included; nothing where they are the wrong way round."""
    starts = np.broadcast_to(np.asarray(start), until.shape)
    right = until >= starts
    np.add.at(change, starts[right], nbytes[right])
    np.add.at(change, until[right] + 1, -nbytes[right])

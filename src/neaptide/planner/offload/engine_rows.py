"""Rows of a linear program that keep a copy engine within the time that there is: the windows of one machine.

What begins and ends within a run of cells takes no longer than that run. There are as many runs as pairs of cells, and
written out each names all copies in it. So the sums are built up instead: of copies that may begin in one cell and are
done up to another, and of those that may begin in a cell or behind it. Each row then has a few entries, and the optimum is
the same. Runs that have time for all of their copies, or say no more than a shorter one, have no row.
"""

from __future__ import annotations

import numpy as np

from neaptide.linear.arrays import Flags, Floats
from neaptide.linear.sparse_program import SparseProgram
from neaptide.schedule.evaluate import Ints


def add_engine_rows(
    program: SparseProgram,
    copies: Ints,
    alike: Ints,
    begin: Ints,
    done: Ints,
    cells: Floats,
    relief: Ints,
) -> Ints:
    """Have copies of one engine fit into each run of cells. O(copies + cells^3).

    Args:
        program: that has the rows.
        copies: variables, 1 for a copy that is made.
        alike: a number for each; at most one of those with the same number is made, and all of them take as long and
            begin, or are done, in the same cell.
        begin: the cell in which each may begin; below 0 for one that is before all cells, or that there is not.
        done: the cell in which each is done, not before `begin`; above the last for one that is behind all cells.
        cells: how long each copy takes, in cells.
        relief: variables, by how many cells each cell is longer than it was.

    Returns:
        Variables that were added, of any size, and never in whole numbers.
    """
    count = len(relief)
    inside = (begin >= 0) & (done < count)
    copies, alike, begin, done = copies[inside], alike[inside], begin[inside], done[inside]
    cells = cells[inside]
    first, last = np.nonzero(_binding(alike, begin, done, cells, count))
    if not len(first):
        return np.zeros(0, dtype=np.int64)
    firsts, lasts = np.unique(first), np.unique(last)
    # In which row and column of the table of these runs each copy counts first.
    row, column = np.searchsorted(firsts, begin, side="right") - 1, np.searchsorted(lasts, done)
    counts = (row >= 0) & (column < len(lasts))
    is_run: Flags = firsts[:, None] <= lasts[None, :]
    number = np.where(is_run, np.cumsum(is_run).reshape(is_run.shape) - 1, -1)
    total = int(is_run.sum())
    every = np.arange(total)
    # By run: what may begin between its first cell and the next first one, done up to its last; and all that lies in it.
    starting = program.variables(np.ones(total, dtype=bool))
    within = program.variables(np.ones(total, dtype=bool))
    longer, shorter = number[:, 1:][is_run[:, :-1]], number[:, :-1][is_run[:, :-1]]
    earlier, later = number[:-1][is_run[1:]], number[1:][is_run[1:]]
    program.add_entries(
        np.concatenate((number[row[counts], column[counts]], longer, every)),
        np.concatenate((copies[counts], starting[shorter], starting)),
        np.concatenate((cells[counts], np.ones(len(longer)), -np.ones(total))),
        np.zeros(total),
    )
    program.add_entries(
        np.concatenate((earlier, every, every)),
        np.concatenate((within[later], starting, within)),
        np.concatenate((np.ones(len(earlier) + total), -np.ones(total))),
        np.zeros(total),
    )
    lengths = last - first + 1
    rows = np.arange(len(first))
    of_cell = np.repeat(rows, lengths)
    cell = np.arange(len(of_cell)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + first[of_cell]
    runs = number[np.searchsorted(firsts, first), np.searchsorted(lasts, last)]
    program.add_entries(
        np.concatenate((rows, of_cell)),
        np.concatenate((within[runs], relief[cell])),
        np.concatenate((np.ones(len(rows)), -np.ones(len(of_cell)))),
        lengths.astype(np.float64),
    )
    return np.concatenate((starting, within))


def _binding(alike: Ints, begin: Ints, done: Ints, cells: Floats, count: int) -> Flags:
    """By first and last cell, whether copies can ask for more than there is, and for more than in a shorter run."""
    # Of copies that are alike, the one with the least time lies in all runs in which any of them does.
    shortest = np.argsort(done - begin, kind="stable")
    chosen = shortest[np.unique(alike[shortest], return_index=True)[1]]
    work = np.zeros((count, count))
    np.add.at(work, (begin[chosen], done[chosen]), cells[chosen])
    within = np.cumsum(np.cumsum(work, axis=1)[::-1], axis=0)[::-1]
    there = np.zeros((count, count), dtype=bool)
    there[begin, done] = True
    begins_first: Flags = np.logical_or.accumulate(there, axis=1)
    ends_last: Flags = np.logical_or.accumulate(there[::-1], axis=0)[::-1]
    lengths = np.arange(count)[None, :] - np.arange(count)[:, None] + 1
    return (within > lengths) & begins_first & ends_last & (lengths > 0)

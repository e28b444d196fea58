"""Planners that share whole objects: buffers that are never live together get one, and objects lie end to end.

Gaps count as in use. Objects lie above all fixed buffers, which these planners do not know.
"""

from __future__ import annotations

import numpy as np

from neaptide.layout.placement import order_by, program_order, watched
from neaptide.layout.problem import ANYWHERE, Ints, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard
from neaptide_peers.layouts.end_to_end import lay_end_to_end
from neaptide_peers.layouts.orders import ORDERS, BufferKeys


def place_executorch(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """ExecuTorch's `greedy`: by size descending; the free object closest in size, else inside one, else a new one.

    Inside an object that is not free a buffer lies on top of the members that are live with it, if it fits; the
    first such object is taken. O(n^2), vectorised. Source: pytorch/executorch `exir/memory_planning.py`.
    """
    objects = _Objects(problem)
    for index in watched(program_order(problem, -problem.sizes), guard):
        if problem.fixed[index] != ANYWHERE:
            continue
        tops = objects.tops(index)
        free = np.flatnonzero(tops == 0)
        size = int(problem.sizes[index])
        if len(free):
            # By descending size every object is large enough, so the smallest is the closest.
            objects.join(index, int(free[objects.sizes[free].argmin()]), 0)
            continue
        inner = tops + (-tops % problem.alignments[index])
        fits = np.flatnonzero(inner + size <= objects.sizes)
        if len(fits):
            objects.join(index, int(fits[0]), int(inner[fits[0]]))
        else:
            objects.join(index, objects.add(), 0)
    return objects.layout()


def place_breadth_objects(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """Greedy by breadth with shared objects: the smallest free object that is large enough, else the largest grows.

    Steps by bytes live, most first; of each step the buffers by size descending. O(n^2), vectorised.
    Source: Pisarchyk and Lee, arXiv 2001.03288, algorithm 1, with bytes live for the operands of an op.
    """
    keys = BufferKeys.of(problem)
    objects = _Objects(problem)
    for index in watched(order_by(problem, *ORDERS["breadth"](keys)), guard):
        if problem.fixed[index] != ANYWHERE:
            continue
        free = np.flatnonzero(objects.tops(index) == 0)
        if not len(free):
            objects.join(index, objects.add(), 0)
            continue
        sizes = objects.sizes[free]
        large = np.flatnonzero(sizes >= problem.sizes[index])
        best = large[sizes[large].argmin()] if len(large) else sizes.argmax()
        objects.join(index, int(free[best]), 0)
    return objects.layout()


class _Objects:
    """Objects so far; members are kept as columns, so that one comparison finds those live with a buffer."""

    __slots__ = ("_count", "_inner", "_members", "_objects", "_problem", "_room", "_tops", "sizes")

    def __init__(self, problem: LayoutProblem) -> None:
        self._problem = problem
        self._members = np.empty(len(problem), dtype=np.int64)
        self._objects = np.full(len(problem), -1, dtype=np.int64)
        self._inner = np.zeros(len(problem), dtype=np.int64)
        self._room = np.zeros(len(problem), dtype=np.int64)
        self._tops = np.zeros(len(problem), dtype=np.int64)
        self._count = 0
        self.sizes: Ints = self._room[:0]

    def tops(self, index: int) -> Ints:
        """By object, one past the highest of its bytes that a member live with this buffer uses; 0 for free ones."""
        problem = self._problem
        members = self._members[: self._count]
        live = (problem.starts[members] < problem.ends[index]) & (
            problem.ends[members] > problem.starts[index]
        )
        found = members[live]
        tops = self._tops[: len(self.sizes)]
        tops[:] = 0
        np.maximum.at(tops, self._objects[found], self._inner[found] + problem.sizes[found])
        return tops

    def add(self) -> int:
        """A new object without bytes; returns its number."""
        count = len(self.sizes)
        self.sizes = self._room[: count + 1]
        return count

    def join(self, index: int, number: int, inner: int) -> None:
        """Make a buffer a member of an object, which grows where it has to."""
        self._members[self._count] = index
        self._count += 1
        self._objects[index] = number
        self._inner[index] = inner
        self.sizes[number] = max(int(self.sizes[number]), inner + int(self._problem.sizes[index]))

    def layout(self) -> Layout:
        """All objects end to end."""
        return lay_end_to_end(
            self._problem, self._objects.tolist(), self._inner.tolist(), self.sizes.tolist()
        )

"""Buffers placed one by one in some order, each at the lowest, tightest or topmost place; and rules that make an order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from neaptide.errors import LayoutProblemError, NeaptideError
from neaptide.layout.problem import ANYWHERE, Ints, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.outcome import LimitGuard

T = TypeVar("T")
Column: TypeAlias = NDArray[np.signedinteger[Any]]
_MOST_SHORT_RANKS: Final = np.iinfo(np.int16).max
_NO_FIT: Final = np.iinfo(np.int64).max


class RuleStopped(NeaptideError):  # noqa: N818 - what happened is name enough
    """A rule was stopped before every buffer had its place, so there is no layout of it."""


def watched(items: Iterable[T], guard: LimitGuard | None) -> Iterator[T]:
    """The items one by one, for as long as there is time.

    Work is not charged: a rule runs as a whole or, with a guard without time limit and interrupt, never stops.

    Raises:
        RuleStopped: the time is over, or the user interrupts.
    """
    for item in items:
        if guard is not None and (reason := guard.check_now()) is not None:
            raise RuleStopped("a placement rule was stopped before its end", why=f"limit: {reason}")
        yield item


class Fit(StrEnum):
    """Which place a buffer takes among those that are free for the whole of its lifetime.

    `FIRST`: the lowest. `BEST`: the tightest hole, the lowest of equals, else on top. `STACK`: on top of everything
    that is live with it, holes are never used.
    """

    FIRST = "first"
    BEST = "best"
    STACK = "stack"


class Shelf:
    """Buffers that have a place, as rows sorted by their lowest byte. A buffer with gaps is one row for each part.

    Times are ranks among all starts and ends, so that the comparison with every row reads two bytes a row.

    Attributes:
        offsets: by buffer; `ANYWHERE` for those without a place.
    """

    __slots__ = (
        "_aligned",
        "_begins",
        "_buffers",
        "_count",
        "_ends",
        "_highs",
        "_lows",
        "_mask",
        "_parts",
        "_running",
        "offsets",
        "problem",
    )

    def __init__(self, problem: LayoutProblem) -> None:
        self.problem = problem
        self.offsets = [ANYWHERE] * len(problem)
        sizes = problem.sizes
        alignments = set(problem.alignments.tolist())
        # One alignment for all: with sizes rounded up every place is a multiple of it by itself.
        self._aligned = len(alignments) <= 1 and not problem.has_gaps
        if self._aligned and alignments:
            alignment = alignments.pop()
            sizes = -(-sizes // alignment) * alignment
        self._parts = _ranked_parts(problem, sizes)
        rows = sum(map(len, self._parts))
        short = 2 * rows <= _MOST_SHORT_RANKS
        ranks: type[np.int16 | np.int32] = np.int16 if short else np.int32
        self._begins = np.empty(rows, dtype=ranks)
        self._ends = np.empty(rows, dtype=ranks)
        self._lows = np.empty(rows, dtype=np.int64)
        self._highs = np.empty(rows, dtype=np.int64)
        self._buffers = np.empty(rows, dtype=np.int32)
        self._mask = np.empty((2, rows), dtype=np.bool_)
        self._running = np.zeros(rows + 1, dtype=np.int64)
        self._count = 0

    def put(self, index: int, offset: int) -> None:
        """Give a buffer a place, which is not checked. O(rows) to move, a few microseconds."""
        self.offsets[index] = offset
        for begin, end, low, high in self._parts[index]:
            count = self._count
            at = int(self._lows[:count].searchsorted(offset + low))
            row: tuple[tuple[Column, int], ...] = (
                (self._begins, begin),
                (self._ends, end),
                (self._lows, offset + low),
                (self._highs, offset + high),
                (self._buffers, index),
            )
            for column, value in row:
                column[at + 1 : count + 1] = column[at:count]
                column[at] = value
            self._count = count + 1

    def put_fixed(self) -> None:
        """Put every fixed buffer where it belongs."""
        for index, offset in enumerate(self.problem.fixed.tolist()):
            if offset != ANYWHERE:
                self.put(index, offset)

    def find(self, index: int, fit: Fit) -> int:
        """A place for a buffer among those that have one. O(rows), vectorised."""
        parts = self._parts[index]
        begin, end, low, high = parts[0]
        hit = self._rows_during(begin, end)
        # It may lie at most at `until`, or at least at `since`, to miss the row.
        until = self._lows[hit]
        until -= high
        since = self._highs[hit]
        if len(parts) > 1:
            columns = [(until, since - low)]
            for begin, end, low, high in parts[1:]:
                hit = self._rows_during(begin, end)
                columns.append((self._lows[hit] - high, self._highs[hit] - low))
            until = np.concatenate([column for column, _ in columns])
            since = np.concatenate([column for _, column in columns])
            order = until.argsort(kind="stable")
            until, since = until[order], since[order]
        elif low:
            since -= low
        alignment = 1 if self._aligned else int(self.problem.alignments[index])
        return self._choose(until, since, alignment, fit)

    def _rows_during(self, begin: int, end: int) -> NDArray[np.intp]:
        count = self._count
        mask, other = self._mask[:, :count]
        np.less(self._begins[:count], end, out=mask)
        np.greater(self._ends[:count], begin, out=other)
        np.logical_and(mask, other, out=mask)
        hit: NDArray[np.intp] = mask.nonzero()[0]
        return hit

    def _choose(self, until: Ints, since: Ints, alignment: int, fit: Fit) -> int:
        """The place, given for each row in its way, by ascending `until`, that it lies until or since somewhere."""
        count = len(until)
        if not count:
            return 0
        lowest = self._running[: count + 1] if count < len(self._running) else np.empty(count + 1, np.int64)
        lowest[0] = 0
        np.maximum.accumulate(since, out=lowest[1:])
        if alignment > 1 or self.problem.has_gaps:
            # A part that begins above byte 0 can be below a row and yet need no byte below 0.
            np.maximum(lowest, 0, out=lowest)
            lowest += alignment - 1
            lowest &= -alignment
        if fit is Fit.STACK:
            return int(lowest[count])
        slack = until
        slack -= lowest[:count]
        fits = slack >= 0
        if fit is Fit.FIRST:
            at = int(fits.argmax())
            return int(lowest[at if fits[at] else count])
        slack[~fits] = _NO_FIT
        at = int(slack.argmin())
        return int(lowest[at if fits[at] else count])


def place(problem: LayoutProblem, order: Sequence[int], fit: Fit, guard: LimitGuard | None = None) -> Layout:
    """Place fixed buffers where they belong, then the others one by one. O(n^2), vectorised: 0.4 s at n = 10,000.

    Raises:
        LayoutProblemError: the order misses a buffer or names one twice.
        RuleStopped: the guard said stop.
    """
    layout = place_below(problem, order, fit, None, guard)
    assert layout is not None
    return layout


def place_below(
    problem: LayoutProblem,
    order: Sequence[int],
    fit: Fit,
    limit_bytes: int | None,
    guard: LimitGuard | None = None,
) -> Layout | None:
    """Like `place`, but gives up, with None, as soon as the arena reaches a limit."""
    if sorted(order) != list(range(len(problem))):
        raise LayoutProblemError(f"the order does not name each of the {len(problem)} buffers once")
    shelf = fixed_shelf(problem)
    sizes = problem.sizes.tolist()
    for index in watched(order, guard):
        if shelf.offsets[index] == ANYWHERE:
            offset = shelf.find(index, fit)
            if limit_bytes is not None and offset + sizes[index] >= limit_bytes:
                return None
            shelf.put(index, offset)
    layout = Layout.of(problem, tuple(shelf.offsets))
    return layout if limit_bytes is None or layout.arena_bytes < limit_bytes else None


def fixed_shelf(problem: LayoutProblem) -> Shelf:
    """A shelf with nothing but the fixed buffers on it."""
    shelf = Shelf(problem)
    shelf.put_fixed()
    return shelf


def _ranked_parts(problem: LayoutProblem, sizes: Ints) -> list[tuple[tuple[int, int, int, int], ...]]:
    """The parts of each buffer with times as ranks. A whole buffer is as large as `sizes` says."""
    if not problem.has_gaps:
        points = np.unique(np.concatenate([problem.starts, problem.ends]))
        columns = (
            np.searchsorted(points, problem.starts).tolist(),
            np.searchsorted(points, problem.ends).tolist(),
            sizes.tolist(),
        )
        return [((begin, end, 0, size),) for begin, end, size in zip(*columns, strict=True)]
    parts = [buffer.parts() for buffer in problem.buffers]
    rank = {
        time: at
        for at, time in enumerate(
            sorted({time for pieces in parts for p in pieces for time in (p.start, p.end)})
        )
    }
    return [tuple((rank[p.start], rank[p.end], p.low, p.high) for p in pieces) for pieces in parts]


def order_by(problem: LayoutProblem, *columns: Ints) -> list[int]:
    """Buffers by sort keys, ascending, the first decides. O(n log n).

    Ties are broken by start, longer life, larger size and alignment, and by the place in the problem last: buffers
    without gaps that still tie are the same, so the arena of a rule does not depend on how buffers are numbered.
    """
    ties = (problem.starts, -problem.ends, -problem.sizes, -problem.alignments)
    order: list[int] = np.lexsort((*reversed(ties), *reversed(columns))).tolist()
    return order


def by_size(problem: LayoutProblem) -> list[int]:
    """The largest first, those that live longest among equals."""
    return order_by(problem, -problem.sizes, problem.starts - problem.ends)


def by_life(problem: LayoutProblem) -> list[int]:
    """Those that live longest first, the largest among equals."""
    return order_by(problem, problem.starts - problem.ends, -problem.sizes)


def program_order(problem: LayoutProblem, *columns: Ints) -> list[int]:
    """Buffers by sort keys, then by start, then as they are listed: as planners do that walk over a program."""
    order: list[int] = np.lexsort((problem.starts, *reversed(columns))).tolist()
    return order


class Rule(Protocol):
    """Makes one layout of a problem, legal and the same again, without search: no limit of work stops it.

    A guard may stop it in the middle, with `RuleStopped`. `tests/layout/test_placement_rule_conformance.py` holds each rule to
    this, those of others included.
    """

    def __call__(self, problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout: ...


def place_by_size(problem: LayoutProblem, guard: LimitGuard | None = None) -> Layout:
    """The largest first, each at its lowest address. O(n^2), vectorised.

    The arena does not depend on how buffers are numbered, as long as they have no gaps.
    """
    return place(problem, by_size(problem), Fit.FIRST, guard)


RULES: Final[Mapping[str, Rule]] = MappingProxyType({"size_first": place_by_size})
"""Those of the default. Beside the searches that follow it, no other rule decides an answer (`ablation.py layout`)."""


def follow(problem: LayoutProblem, addresses: Ints, guard: LimitGuard | None = None) -> Layout:
    """Place buffers by ascending addresses, each at the lowest place that is free. O(n^2), vectorised.

    Where the addresses are those of a layout for the same lifetimes, each buffer comes to lie at most as high as the
    largest sum of aligned sizes of buffers that lie on each other below it. So the arena is no larger than before where no
    size is, at most `k` times as large where no aligned size is more than `k` times what it was, and never larger for
    smaller sizes than that sum for larger ones.

    Raises:
        RuleStopped: the guard said stop.
    """
    return place(problem, order_by(problem, addresses), Fit.FIRST, guard)

"""A range of shapes cut into boxes, each with the order that is proved to be within a tolerance of all others there.

Where no order is proved to be, a box is cut in two, until there is one for each part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt
from typing import Final

from neaptide.errors import SymbolicError
from neaptide.schedule.symbolic.peaks import is_covered, largest
from neaptide.symbolic.dims import Dim, Relation
from neaptide.symbolic.relations import KnownSize, SizeRelations
from neaptide.symbolic.size_expr import SizeExpr

_SMALLEST_WIDTH: Final = 2  # a range that is cut has at least as many sizes
_BEYOND: Final = 4  # a range without end is cut this many times its lower end above it

# Shares that are tried, in thousandths: what is proved is one of them.
_LADDER: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

Peak = Sequence[SizeExpr]


@dataclass(frozen=True, slots=True)
class RangePart:
    """A box of shapes and the order to run there.

    Attributes:
        excess: for every shape of the part its peak is proved to be at most `1 + excess` times that of each other order;
            None where nothing is proved.
        seen_excess: the largest share by which its peak is above the lowest, at the sample shapes of the part.
    """

    dims: tuple[Dim, ...]
    order: int
    excess: Fraction | None
    seen_excess: Fraction

    def __contains__(self, sizes: dict[str, int]) -> bool:
        return all(sizes[dim.name] in dim for dim in self.dims)


def best_parts(
    dims: Sequence[Dim],
    relations: Sequence[Relation],
    peaks: Sequence[Peak],
    *,
    tolerance: Fraction,
    most_parts: int,
) -> tuple[RangePart, ...]:
    """A partition of the range into boxes, with an order for each. O(parts x orders^2 x expressions^2) comparisons.

    The widest parts are cut first. A part is not cut where an order is proved to be within the tolerance of all others.
    """
    done: list[RangePart] = []
    waiting = [whole] if (whole := _part(tuple(dims), relations, peaks)) is not None else []
    while waiting:
        part = waiting.pop(0)
        halves = _halves(part)
        is_settled = part.excess is not None and part.excess <= tolerance
        if is_settled or halves is None or len(done) + len(waiting) + 2 > most_parts:
            done.append(part)
            continue
        found = (_part(half, relations, peaks) for half in halves)
        waiting += [made for made in found if made is not None]
    return tuple(done)


def _part(dims: tuple[Dim, ...], relations: Sequence[Relation], peaks: Sequence[Peak]) -> RangePart | None:
    """The best order of a box; None where the box holds no shape."""
    try:
        store = SizeRelations(dims, relations)
    except SymbolicError:
        return None  # the relations hold for no shape of this box
    known = [largest(store, map(store.known, peak)) for peak in peaks]
    samples = [list(zip(*(size.samples for size in peak), strict=True)) for peak in known]
    numbers = [[max(sizes) for sizes in of_order] for of_order in samples]
    lowest = [min(at) for at in zip(*numbers, strict=True)]
    seen = [
        max(
            (Fraction(number, least) - 1 if least else Fraction(0) for number, least in pairs),
            default=Fraction(0),
        )
        for pairs in (zip(of_order, lowest, strict=True) for of_order in numbers)
    ]
    order = min(range(len(peaks)), key=lambda number: (seen[number], sum(numbers[number])))
    shares = [proved_excess(store, known[order], other) for other in known]
    proved = [share for share in shares if share is not None]
    return RangePart(dims, order, max(proved) if len(proved) == len(shares) else None, seen[order])


def proved_excess(
    store: SizeRelations, peak: Sequence[KnownSize], others: Sequence[KnownSize]
) -> Fraction | None:
    """The least share that is proved: for every shape one peak is at most `1 + share` times another; None without proof.

    It is where every expression of one is at most `1 + share` times some expression of the other.
    """
    left = list(peak)
    for thousandths in _LADDER:
        raised = [size * (1000 + thousandths) for size in others]
        left = [size for size in left if not is_covered(store, size * 1000, raised)]
        if not left:
            return Fraction(thousandths, 1000)
    return None


def _halves(part: RangePart) -> tuple[tuple[Dim, ...], tuple[Dim, ...]] | None:
    """The box cut in two where it is widest, by ratio; None where it is a single shape."""
    best: tuple[float, int, int] | None = None
    for number, dim in enumerate(part.dims):
        low = max(dim.low, 1)
        high = _BEYOND * _BEYOND * low if dim.high is None else dim.high
        if high - dim.low + 1 < _SMALLEST_WIDTH:
            continue
        ratio = float("inf") if dim.high is None else high / low
        if best is None or ratio > best[0]:
            best = ratio, number, min(max(isqrt(low * high), dim.low), high - 1)
    if best is None:
        return None
    _, number, middle = best
    dim = part.dims[number]
    lower, upper = replace(dim, high=middle), replace(dim, low=middle + 1)
    return (
        (*part.dims[:number], lower, *part.dims[number + 1 :]),
        (*part.dims[:number], upper, *part.dims[number + 1 :]),
    )

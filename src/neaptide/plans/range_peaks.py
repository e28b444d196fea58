"""Peaks over the ranges of dims, as plain data: one curve along one dim, for some sizes of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from neaptide.symbolic.dims import Dim

_MOST_SIZES: Final = 17  # of a curve
_MOST_CURVES: Final = 5

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

PeakAt = Callable[[Mapping[str, int]], int]
"""Bytes at a shape."""


@dataclass(frozen=True, slots=True)
class PeakCurve:
    """Predicted peaks along one dim: storages and workspace by formula.

    Attributes:
        dim: name of the dim.
        beside: sizes of the other dims.
        sizes: of the dim, ascending.
        baseline_peak_bytes: in program order, one for each size.
        planned_peak_bytes: of what was planned, likewise; empty where nothing was.
        plans: which of several plans runs, likewise; empty where there are not several.
    """

    dim: str
    beside: Mapping[str, _Count]
    sizes: tuple[_Count, ...]
    baseline_peak_bytes: tuple[_Count, ...]
    planned_peak_bytes: tuple[_Count, ...] = ()
    plans: tuple[_Count, ...] = ()

    def label(self) -> str:
        """The sizes of the other dims, in words; empty where there are none."""
        return ", ".join(f"{dim} = {size}" for dim, size in self.beside.items())


@dataclass(frozen=True, slots=True)
class RangePeaks:
    """Peaks over the ranges of all dims.

    Attributes:
        curves: by the sizes of the other dims, ascending.
        limit_bytes: that what was planned stays within; None where nothing was planned.
    """

    curves: tuple[PeakCurve, ...]
    limit_bytes: _Count | None = None


def range_peaks(
    dims: Sequence[Dim],
    holds: Callable[[Mapping[str, int]], bool],
    baseline: PeakAt,
    planned: PeakAt | None = None,
    limit_bytes: int | None = None,
    plan_at: Callable[[Mapping[str, int]], int] | None = None,
) -> RangePeaks:
    """Peaks along the dim with the longest range, for sizes of the others on the way from their smallest to their largest.

    Nothing is told where no dim varies, or where one has no end. At most 17 sizes of 5 curves are looked at.

    Args:
        dims: with their ranges.
        holds: whether the program is for a shape; others are left out.
        baseline: peak in program order.
        planned: peak of what was planned.
        limit_bytes: that it stays within.
        plan_at: which of several plans runs at a shape.
    """
    if not dims or any(dim.high is None for dim in dims):
        return RangePeaks((), limit_bytes)
    along = max(dims, key=lambda dim: (dim.high or 0) - dim.low)
    others = [dim for dim in dims if dim is not along]
    longest = max(((dim.high or 0) - dim.low for dim in others), default=0)
    curves = []
    for step in _between(0, longest, _MOST_CURVES):
        beside = {dim.name: dim.low + ((dim.high or 0) - dim.low) * step // max(longest, 1) for dim in others}
        sizes = _between(along.low, along.high or 0, _MOST_SIZES)
        shapes = {size: {**beside, along.name: size} for size in sizes}
        shapes = {size: shape for size, shape in shapes.items() if holds(shape)}
        if shapes:
            curves.append(
                PeakCurve(
                    along.name,
                    beside,
                    tuple(shapes),
                    tuple(map(baseline, shapes.values())),
                    () if planned is None else tuple(map(planned, shapes.values())),
                    () if plan_at is None else tuple(map(plan_at, shapes.values())),
                )
            )
    return RangePeaks(tuple(curves), limit_bytes)


def _between(low: int, high: int, most: int) -> list[int]:
    """Numbers from one to another, both included, in steps as even as can be."""
    steps = min(most - 1, high - low)
    return [low + (high - low) * number // max(steps, 1) for number in range(steps + 1)]

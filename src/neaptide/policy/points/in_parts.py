"""Looks for a second program, with a region in parts, that serves some shapes better than the one with points alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from neaptide.ir.registry import OpRegistry
from neaptide.planner.points.choice import Choice
from neaptide.planner.points.regions import regions_in_parts
from neaptide.runtime.steps.planned_graph import PlannedGraph, PointsWithin

_MOST_REGIONS: Final = 6

Shape = Mapping[str, int]
_Rank = tuple[int, float, int]


def with_parts(
    planned: PlannedGraph,
    registry: OpRegistry,
    shapes: Iterable[Shape],
    points_of: Callable[[PlannedGraph], PointsWithin],
) -> tuple[PlannedGraph, str]:
    """A program with points, and beside it the best one with a region in parts, where that serves some shape better.

    Each call runs the better of both, so no shape is served worse than without. Programs are compared at some shapes: by
    the most bytes above the limit, then by seconds over all of them, then by their peaks.

    Args:
        planned: with points.
        registry: what its operations mean.
        shapes: at which programs are compared.
        points_of: the points of a rewritten program, within the same limit.

    Returns:
        The program, and what was found, in words.
    """
    assert planned.points is not None
    own, limit = planned.points, planned.limit_bytes
    shapes = list(shapes)

    def ranks(points: PointsWithin) -> list[_Rank]:
        choice = Choice([points.plan])
        return [choice.rank(shape, limit) for shape in shapes]

    alone = ranks(own)
    best, least, told = None, _over_all(alone), "no region is better in parts"
    for region in regions_in_parts(planned.graph, registry, planned.program.sizes.hold, _MOST_REGIONS):
        if planned.objection(region.edited) is not None:
            continue
        made = planned.rewritten(region.edited, region.rewrites)
        points = points_of(made)
        found = _over_all(map(min, alone, ranks(points)))
        if found < least:
            best, least = replace(made, points=points), found
            told = f"{region.told} in as many parts as a shape needs"
    return replace(planned, in_parts=best), told


def _over_all(ranks: Iterable[_Rank]) -> _Rank:
    above, seconds, peaks = zip(*ranks, strict=True)
    return max(above), sum(seconds), sum(peaks)

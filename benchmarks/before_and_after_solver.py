"""One side of `before_and_after.py`: solves what it is asked on stdin with the neaptide that it imports.

A line of JSON in, a line of JSON out. Only names that have been there since the first portfolios are used, so that both
sides can be any two versions. Answers are lists of numbers in which less is better.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

Row = dict[str, Any]
_POINTS: Final = 20  # of a curve
_GRID: Final = tuple(k / 10 for k in range(10))  # of the way from the baseline's peak down to the lower bound
Solve = Callable[[], Row]


def order(path: Path, limits: Any, _: Row) -> Solve:
    """Bytes of the peak."""
    from neaptide.schedule.order.neutral import from_json
    from neaptide.schedule.order.portfolio import best_order

    problem = from_json(path.read_text(encoding="utf-8"))

    def solve() -> Row:
        outcome = best_order(problem, limits)
        found = outcome.require()
        return _answer([found.peak_bytes], outcome, proved=found.certificate.is_optimal)

    return solve


def layout(path: Path, limits: Any, _: Row) -> Solve:
    """Bytes of the arena."""
    from neaptide.layout.best_layout import best_layout
    from neaptide.layout.minimalloc_csv import read_csv

    problem = read_csv(path.read_text(encoding="utf-8"), path=str(path))

    def solve() -> Row:
        outcome = best_layout(problem, limits)
        found = outcome.require()
        assert found.layout is not None
        return _answer([found.layout.arena_bytes], outcome, proved=found.certificate.is_optimal)

    return solve


def recompute(path: Path, limits: Any, asked: Row) -> Solve:
    """Seconds above the baseline's, as a share; where the budget is missed, bytes above it come first."""
    from neaptide.planner.portfolio import plan_sequence
    from neaptide.planner.strategies.program_order import baseline
    from neaptide.schedule.recompute_form import from_json

    step = from_json(path.read_bytes())
    before = baseline(step)
    budget = int(float(asked["share"]) * before.peak_with_workspace_bytes)

    def solve() -> Row:
        outcome = plan_sequence(step, budget, limits)
        plan = outcome.require()
        above = max(plan.peak_with_workspace_bytes - budget, 0)
        # Above the budget less memory is better, whatever time it takes.
        overhead = plan.seconds / before.seconds - 1.0 if not above else 0.0
        return _answer([above / budget, overhead], outcome, proved=outcome.termination.is_proved)

    return solve


def curve(path: Path, limits: Any, _: Row) -> Solve:
    """The lowest peak as a share of the baseline's, and the least overhead at some shares of the way down."""
    from neaptide.planner.recompute.curve.curve import recompute_curve
    from neaptide.schedule.recompute_form import from_json

    step = from_json(path.read_bytes())

    def solve() -> Row:
        outcome = recompute_curve(step, count=_POINTS, limits=limits)
        found = outcome.require()
        high, low = found.baseline_peak_bytes, step.lower_bound_bytes
        overheads = [
            min(
                (
                    found.overhead(point.seconds)
                    for point in found.points
                    if point.peak_bytes <= high - (high - low) * share
                ),
                default=math.inf,
            )
            for share in _GRID
        ]
        reached = [math.nan if overhead == math.inf else overhead for overhead in overheads]
        values = [found.lowest_peak_bytes / high, *reached]
        return _answer(values, outcome, proved=outcome.termination.is_proved)

    return solve


def _answer(values: list[float], outcome: Any, *, proved: bool) -> Row:
    # NaN is no JSON: None is what was not reached.
    shown = [None if isinstance(value, float) and math.isnan(value) else value for value in values]
    return {"values": shown, "proved": proved, "work": outcome.work}


ROOMS: Final[Mapping[str, Callable[[Path, Any, Row], Solve]]] = MappingProxyType(
    {"order": order, "layout": layout, "recompute": recompute, "curve": curve}
)


def main() -> None:
    """A request names room, file, work, seed and what the room wants; `again` times the last one once more."""
    from neaptide.outcome import Limits

    solve: Solve | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if not asked.get("again"):
            room, path = ROOMS[asked["room"]], Path(asked["file"])
            # What is imported at first use is paid for by a search that ends at once.
            room(path, Limits(work=10, seed=asked["seed"]), asked)()
            solve = room(path, Limits(work=asked["work"], seed=asked["seed"]), asked)
            found: Row = {}
        else:
            assert solve is not None
            gc.collect()
            began = time.process_time()
            found = solve()
            found["cpu_seconds"] = time.process_time() - began
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

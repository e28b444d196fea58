"""The commands that trade time for memory: a recompute instance for one budget, and curves over all budgets."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neaptide.ask import CLOSE, DEFAULT_STRATEGY, Ask
from neaptide.budget import Budget
from neaptide.cli.command import Request
from neaptide.cli.commands import prepared_target
from neaptide.cli.files import naming
from neaptide.cli.process import exit_codes
from neaptide.cli.process.interrupts import asking_before_aborting
from neaptide.errors import TargetError, UsageError
from neaptide.files.reading import read_bytes
from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.report.document import Document, Table, document
from neaptide.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import threading

    from neaptide.planner.objective import PlannedSequence
    from neaptide.planner.recompute.curve.curve import RecomputeCurve
    from neaptide.schedule.problem import StepProblem

_ALL: Final = "all"


def recompute(request: Request) -> int:
    """Plans a recompute instance for a budget, and says what is proved."""
    from neaptide.planner.strategies.program_order import baseline

    settings = request.settings
    if settings.peak is None:
        raise UsageError("a recompute instance is planned for a budget", next_step="add --peak 45%")
    step = _read_instance(Path(request.target))
    names = _methods(settings.strategy, settings.also)
    before = baseline(step)
    budget = Budget(settings.peak)
    least = step.lower_bound_bytes if budget.is_min else before.peak_with_workspace_bytes
    allowed = budget.resolve(least)
    request.console.progress(f"planning {step.node_count} operations for {format_bytes(allowed)}")
    found: dict[str, Outcome[PlannedSequence]] = {}
    with asking_before_aborting() as interrupt:
        for name in names:
            found[name] = _solve(name, step, None if budget.is_min else allowed, request.limits, interrupt)
        bound = _bound_overhead(step, found[names[0]].require(), before.seconds, allowed, interrupt)
    content = _content(found, before.seconds, allowed, bound)
    request.deliver(content, lambda: _document(content, Path(request.target).name), noun="result")
    is_reached = content["peak_bytes"] <= allowed
    return exit_codes.DONE if budget.is_min or is_reached else exit_codes.OVER_BUDGET


def _content(
    found: Mapping[str, Outcome[PlannedSequence]], baseline_seconds: float, allowed: int, bound: float | None
) -> dict[str, Any]:
    """The result for `--json`: of the first method, which was asked for, and of all.

    `bound`: no plan within the budget with its order of first executions costs less; None where there is proved to be none.
    """
    chosen = next(iter(found.values()))
    plan = chosen.require()
    methods = {
        name: {
            "peak_bytes": outcome.require().peak_with_workspace_bytes,
            "overhead": _overhead(outcome.require().seconds, baseline_seconds),
            "solve_seconds": outcome.seconds,
        }
        for name, outcome in found.items()
    }
    return {
        "sequence": list(plan.sequence),
        "peak_bytes": plan.peak_with_workspace_bytes,
        "budget_bytes": allowed,
        "overhead": _overhead(plan.seconds, baseline_seconds),
        "bound_overhead": bound,
        "solve_seconds": chosen.seconds,
        "strategy": plan.strategy,
        "status": str(chosen.termination.reason),
        "methods": methods,
    }


def _document(found: Mapping[str, Any], name: str) -> Document:
    """The result as a table of the methods that ran, and what is proved."""
    allowed, sequence, bound = found["budget_bytes"], found["sequence"], found["bound_overhead"]
    rows = tuple(
        (
            method,
            format_bytes(one["peak_bytes"]),
            "yes" if one["peak_bytes"] <= allowed else "no",
            f"{one['overhead']:+.3%}",
            format_seconds(one["solve_seconds"]),
        )
        for method, one in found["methods"].items()
    )
    nodes, budget = len(set(sequence)), format_bytes(allowed)
    is_reached = found["peak_bytes"] <= allowed
    reached = f"within the budget of {budget}" if is_reached else f"above the budget of {budget}: not reached"
    no_plan = "No plan with this order of first executions"
    proved = f"{no_plan} is within the budget." if bound is None else f"{no_plan} adds less than {bound:.3%}."
    return document(
        f"{name}: {nodes} operations",
        Table(("method", "peak", "within", "added time", "seconds"), rows),
        f"peak: {format_bytes(found['peak_bytes'])}, {reached}; "
        f"{len(sequence) - nodes} recomputations, {found['overhead']:+.3%} time. {proved}",
        f"strategy: {found['strategy']}; {found['status']} in {format_seconds(found['solve_seconds'])}",
    )


def sweep(request: Request) -> int:
    """Draws the curve of time against memory, from the peak without recomputation to the lowest peak found."""
    from neaptide.planner.recompute.curve.curve import recompute_curve
    from neaptide.report.charts.file import check_picture_path
    from neaptide.report.charts.pictures import curve_chart

    settings = request.settings
    if request.picture is not None:
        check_picture_path(request.picture)
    if settings.numerics == CLOSE:
        return _sweep_variants(request)
    if settings.strategy != DEFAULT_STRATEGY:
        raise UsageError(
            f"a curve that keeps the bits is not drawn by the strategy {settings.strategy!r}",
            why="one search by prices finds all of its points",
            next_step="say --numerics close as well, or leave the strategy out",
        )
    path = Path(request.target)
    step = _read_instance(path) if path.suffix == ".json" else prepared_target(request).problem()
    limits = _curve_limits(request, step.node_count, f"for {settings.points} budgets")
    with asking_before_aborting() as interrupt:
        outcome = recompute_curve(step, count=settings.points, limits=limits, interrupt=interrupt)
    curve = outcome.require()
    if outcome.termination.limit is not None:
        request.console.note(_cut_short(outcome))
    request.draw(lambda: curve_chart(curve, title=request.target))
    content = _curve_content(curve, outcome)
    request.deliver(
        content,
        lambda: _curve_document(content, outcome, request.target),
        noun="curve",
        text=_csv(
            ("budget_bytes", "peak_bytes", "overhead", "bound_overhead", "strategy"), content["points"]
        ),
    )
    return exit_codes.DONE


def _sweep_variants(request: Request) -> int:
    """Draws the front of a program whose regions may run in parts; nothing is proved of it."""
    from neaptide.planner.graphs.graph_search import check_strategy
    from neaptide.planner.recompute.curve.curve import CurvePoint, RecomputeCurve
    from neaptide.planner.variants import check_variants, inner_strategy
    from neaptide.policy.searched_front import searched_front
    from neaptide.report.charts.pictures import curve_chart

    settings = request.settings
    if Path(request.target).suffix == ".json":
        raise UsageError(
            "a recompute instance has no regions that could run in parts",
            next_step="leave --numerics close out, or give a program",
        )
    check_strategy(inner_strategy(settings.strategy), atomic=False)
    check_variants(settings.strategy, CLOSE)
    prepared = prepared_target(request)
    nodes = len(prepared.captured.steady.graph.nodes)
    limits = _curve_limits(request, nodes, f"within {settings.points} limits of time")
    with asking_before_aborting() as interrupt:
        ask = Ask(
            Budget("min"),
            settings.strategy,
            limits=limits,
            interrupt=interrupt,
            numerics=CLOSE,
            workers=settings.workers,
        )
        front = searched_front(prepared, ask, settings.points)
    points = tuple(
        CurvePoint(point.peak_bytes, point.peak_bytes, point.seconds, math.inf, point.label, ())
        for point in front.points
    )
    lowest = min(point.peak_bytes for point in points)
    drawn = RecomputeCurve(points, front.baseline_peak_bytes, front.baseline_seconds, lowest, 0)
    request.draw(lambda: curve_chart(drawn, title=request.target))
    rows = [
        {"peak_bytes": p.peak_bytes, "overhead": front.overhead(p.seconds), "variant": p.label}
        for p in front.points
    ]
    content = {
        "baseline_peak_bytes": front.baseline_peak_bytes,
        "baseline_seconds": front.baseline_seconds,
        "points": rows,
    }
    request.deliver(
        content,
        lambda: _front_document(content, request.target, settings.strategy),
        noun="front",
        text=_csv(("peak_bytes", "overhead", "variant"), rows),
    )
    return exit_codes.DONE


def _curve_limits(request: Request, operations: int, what: str) -> Limits:
    """The limits of a whole curve, told as what is about to be planned."""
    settings = request.settings
    time_s = settings.curve_time_limit_s(operations)
    most = "" if time_s is None else f", for at most {format_seconds(time_s)}"
    request.console.progress(f"planning {operations} operations {what}{most}")
    return Limits(time_s, settings.work_limit, settings.seed)


def _front_document(front: Mapping[str, Any], name: str, strategy: str) -> Document:

    whole = front["baseline_peak_bytes"]
    rows = tuple(
        (format_bytes(p["peak_bytes"]), _share(p["peak_bytes"], whole), f"{p['overhead']:+.2%}", p["variant"])
        for p in front["points"]
    )
    chosen = "" if strategy == DEFAULT_STRATEGY else f", --strategy {strategy}"
    return document(
        f"{name}: time against memory, regions in parts",
        Table(("peak", "of the peak", "added time", "variant"), rows, left=frozenset({3})),
        f"Sums may be taken in another order. Plan one of them with --numerics close{chosen} and --latency.",
    )


def _curve_content(curve: RecomputeCurve, outcome: Outcome[RecomputeCurve]) -> dict[str, Any]:
    """The curve for `--json`."""
    bounds = [curve.overhead(point.bound_seconds) for point in curve.points]
    return {
        "baseline_peak_bytes": curve.baseline_peak_bytes,
        "baseline_seconds": curve.baseline_seconds,
        "lowest_peak_bytes": curve.lowest_peak_bytes,
        "lowest_bound_bytes": curve.lowest_bound_bytes,
        "solve_seconds": outcome.seconds,
        "status": str(outcome.termination.reason),
        "limit": outcome.termination.limit,
        "points": [
            {
                "budget_bytes": point.budget_bytes,
                "peak_bytes": point.peak_bytes,
                "overhead": curve.overhead(point.seconds),
                "bound_overhead": bound if math.isfinite(bound) else None,
                "strategy": point.strategy,
                "sequence": list(point.sequence),
            }
            for point, bound in zip(curve.points, bounds, strict=True)
        ],
    }


def _csv(columns: Sequence[str], points: Iterable[Mapping[str, Any]]) -> str:
    """Points as CSV, one a row; a bound that excludes all plans is `inf`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for point in points:
        cells = ("inf" if point[name] is None else point[name] for name in columns)
        writer.writerow([f"{cell:.6f}" if isinstance(cell, float) else cell for cell in cells])
    return text.getvalue()


def _curve_document(curve: Mapping[str, Any], outcome: Outcome[RecomputeCurve], name: str) -> Document:
    """The curve as a table."""
    rows = []
    for point in curve["points"]:
        least = math.inf if point["bound_overhead"] is None else point["bound_overhead"]
        share = _share(point["peak_bytes"], curve["baseline_peak_bytes"])
        budget, peak = format_bytes(point["budget_bytes"]), format_bytes(point["peak_bytes"])
        rows.append((budget, peak, share, f"{point['overhead']:+.2%}", f"{least:+.2%}", point["strategy"]))
    header = ("budget", "peak", "of the peak", "added time", "bound", "strategy")
    return document(
        f"{name}: time against memory",
        Table(header, tuple(rows), left=frozenset({5})),
        f"{outcome.termination.detail}. Bounds hold for this order of first executions.",
        None if outcome.termination.limit is None else f"Not finished: {_cut_short(outcome)}.",
        f"{outcome.work} changes tried in {format_seconds(outcome.seconds)}",
    )


def _cut_short(outcome: Outcome[RecomputeCurve]) -> str:
    limit = outcome.termination.limit
    return f"the {limit} limit ended the search, so plans may be far from their bounds; a higher --{limit}-limit helps"


def _share(nbytes: int, whole: int) -> str:
    return f"{nbytes / whole:.1%}" if whole else ""


def _methods(chosen: str, also: Sequence[str]) -> list[str]:
    """The strategy asked for, then those to compare with."""
    from neaptide.planner.graphs.graph_search import check_strategy
    from neaptide.planner.strategies import NAMES

    check_strategy(chosen, atomic=False)
    names = [chosen]
    for name in also:
        if name != _ALL:
            check_strategy(name, atomic=False)
        names += NAMES if name == _ALL else (name,)
    return list(dict.fromkeys(names))


def _solve(
    name: str, step: StepProblem, allowed: int | None, limits: Limits, interrupt: threading.Event
) -> Outcome[PlannedSequence]:
    """What a strategy finds within some bytes; the lowest peak where none are given."""
    from neaptide.planner.objective import PlanningProblem
    from neaptide.planner.portfolio import plan_sequence
    from neaptide.planner.recompute.curve.least_memory import least_memory
    from neaptide.planner.strategies import strategy

    if name == DEFAULT_STRATEGY:
        if allowed is None:
            return least_memory(step, math.inf, limits, interrupt)
        return plan_sequence(step, allowed, limits, interrupt=interrupt)
    # A single strategy is asked for the lowest peak by a budget that no plan can be below.
    least = step.lower_bound_bytes if allowed is None else allowed
    return strategy(name)(PlanningProblem(step, least), limits, interrupt)


def _bound_overhead(
    step: StepProblem,
    plan: PlannedSequence,
    baseline_seconds: float,
    allowed: int,
    interrupt: threading.Event,
) -> float | None:
    """Least overhead that is proved for the order of a plan; None when nothing fits."""
    from neaptide.planner.recompute.bounds.certificate import recompute_bound

    if allowed < step.lower_bound_bytes:
        return None
    guard = LimitGuard(Limits(), interrupt)
    bound = recompute_bound(step, allowed, sequence=plan.sequence, guard=guard)
    if bound.is_infeasible:
        return None
    seconds = bound.seconds
    if plan.peak_with_workspace_bytes <= allowed:
        seconds = min(seconds, plan.seconds)
    return max(_overhead(seconds, baseline_seconds), 0.0)


def _overhead(seconds: float, baseline_seconds: float) -> float:
    return seconds / baseline_seconds - 1.0 if baseline_seconds else 0.0


def _read_instance(path: Path) -> StepProblem:
    from neaptide.schedule.recompute_form import from_json

    if path.suffix != ".json":
        raise TargetError(
            f"{str(path)!r} is no recompute instance",
            why="its name does not end in .json",
            next_step="see docs/reference/recompute-form.md",
        )
    data = read_bytes(path)
    with naming(path):
        return from_json(data)

"""The commands that trade time for memory: a recompute instance for one budget, and the curve over all budgets."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neaptide.cli import exit_codes
from neaptide.cli.command import Request
from neaptide.cli.commands import prepared_target
from neaptide.cli.interrupts import asking_before_aborting
from neaptide.cli.target_files import naming, write_result
from neaptide.errors import TargetError, UsageError
from neaptide.reading import read_bytes
from neaptide.units import format_bytes, format_seconds

if TYPE_CHECKING:
    import threading

    from neaptide.outcome import Outcome, Termination
    from neaptide.planner.objective import PlannedSequence
    from neaptide.planner.recompute.curve.points import RecomputeCurve
    from neaptide.report.document import Document
    from neaptide.schedule.problem import StepProblem

_DEFAULT: Final = "default"
_ALL: Final = "all"
_CSV_COLUMNS: Final = ("budget_bytes", "peak_bytes", "overhead", "bound_overhead", "strategy")


def recompute(request: Request) -> int:
    """Plans a recompute instance for a budget, and says what is proved."""
    from neaptide.budget import Budget
    from neaptide.outcome import Limits
    from neaptide.planner.strategies.program_order import baseline

    settings, console = request.settings, request.console
    if settings.peak is None:
        raise UsageError("a recompute instance is planned for a budget", next_step="add --peak 45%")
    step = _read_instance(Path(request.target))
    names = _methods(settings.strategy, settings.also)
    before = baseline(step)
    budget = Budget(settings.peak)
    least = step.lower_bound_bytes if budget.is_min else before.peak_with_workspace_bytes
    allowed = budget.resolve(least)
    limits = Limits(settings.time_limit_s, settings.work_limit, settings.seed)
    console.progress(f"planning {step.node_count} operations for {format_bytes(allowed)}")
    found: dict[str, Outcome[PlannedSequence]] = {}
    with asking_before_aborting() as interrupt:
        for name in names:
            found[name] = _solve(name, step, None if budget.is_min else allowed, limits, interrupt)
        bound = _bound_overhead(step, found[names[0]], before, allowed, interrupt)
    result = _best(found, before, allowed, bound)
    if request.output is not None:
        write_result(request.output, json.dumps(recompute_content(result), indent=2) + "\n")
        console.progress(f"result saved in {request.output}")
    if console.as_json:
        console.json(recompute_content(result))
    else:
        console.document(recompute_document(result, Path(request.target).name))
    reached = budget.is_min or result.plan.peak_with_workspace_bytes <= allowed
    return exit_codes.DONE if reached else exit_codes.OVER_BUDGET


def sweep(request: Request) -> int:
    """Draws the curve of time against memory, from the peak without recomputation to the lowest peak found."""
    from neaptide.ask import CLOSE, DEFAULT_STRATEGY
    from neaptide.outcome import Limits
    from neaptide.planner.recompute.curve.curve import recompute_curve
    from neaptide.report.chart_file import check_picture_path, save_chart
    from neaptide.report.curve_picture import curve_chart

    settings, console = request.settings, request.console
    if request.picture is not None:
        check_picture_path(request.picture)
    if settings.numerics == CLOSE:
        return _in_parts(request)
    if settings.strategy != DEFAULT_STRATEGY:
        raise UsageError(
            f"a curve that keeps the bits is not drawn by the strategy {settings.strategy!r}",
            why="one search by prices finds all of its points",
            next_step="say --numerics close as well, or leave the strategy out",
        )
    step = _step(request)
    time_s = settings.curve_time_limit_s(step.node_count)
    most = "" if time_s is None else f", for at most {format_seconds(time_s)}"
    console.progress(f"planning {step.node_count} operations for {settings.points} budgets{most}")
    limits = Limits(time_s, settings.work_limit, settings.seed)
    with asking_before_aborting() as interrupt:
        outcome = recompute_curve(step, count=settings.points, limits=limits, interrupt=interrupt)
    curve = outcome.require()
    if outcome.termination.limit is not None:
        console.note(_cut_short(outcome))
    if request.output is not None:
        write_result(request.output, curve_csv(curve))
        console.progress(f"curve saved in {request.output}")
    if request.picture is not None:
        save_chart(request.picture, curve_chart(curve, title=request.target))
        console.progress(f"picture saved in {request.picture}")
    if console.as_json:
        console.json(curve_content(curve, outcome))
    else:
        console.document(curve_document(curve, outcome, request.target))
    return exit_codes.DONE


@dataclass(frozen=True, slots=True)
class RecomputeResult:
    """What `recompute` found.

    Attributes:
        plan: of the strategy that was asked for.
        baseline_seconds: of running every node once.
        budget_bytes: highest peak with workspace.
        bound_overhead: no plan within the budget with its order of first executions costs less; None when it is
            proved that there is no such plan.
        termination: how its search ended.
        solve_seconds: of its search.
        methods: by name, (plan, seconds of its search), those to compare with included.
    """

    plan: PlannedSequence
    baseline_seconds: float
    budget_bytes: int
    bound_overhead: float | None
    termination: Termination
    solve_seconds: float
    methods: Mapping[str, tuple[PlannedSequence, float]]

    def overhead(self, plan: PlannedSequence) -> float:
        """Added time of a plan as a fraction of the baseline's."""
        return _overhead(plan.seconds, self.baseline_seconds)


def recompute_content(result: RecomputeResult) -> dict[str, Any]:
    """The result for `--json`."""
    return {
        "sequence": list(result.plan.sequence),
        "peak_bytes": result.plan.peak_with_workspace_bytes,
        "budget_bytes": result.budget_bytes,
        "overhead": result.overhead(result.plan),
        "bound_overhead": result.bound_overhead,
        "solve_seconds": result.solve_seconds,
        "strategy": result.plan.strategy,
        "status": str(result.termination.reason),
        "methods": {
            name: {
                "peak_bytes": plan.peak_with_workspace_bytes,
                "overhead": result.overhead(plan),
                "solve_seconds": seconds,
            }
            for name, (plan, seconds) in result.methods.items()
        },
    }


def recompute_document(result: RecomputeResult, name: str) -> Document:
    """The result as a table of the methods that ran, and what is proved."""
    from neaptide.report.document import Table, document

    rows = []
    for method, (plan, seconds) in result.methods.items():
        peak = format_bytes(plan.peak_with_workspace_bytes)
        within = "yes" if plan.peak_with_workspace_bytes <= result.budget_bytes else "no"
        rows.append((method, peak, within, f"{result.overhead(plan):+.3%}", format_seconds(seconds)))
    again = len(result.plan.sequence) - len(set(result.plan.sequence))
    reached = result.plan.peak_with_workspace_bytes <= result.budget_bytes
    peak = format_bytes(result.plan.peak_with_workspace_bytes)
    budget = format_bytes(result.budget_bytes)
    found = f"within the budget of {budget}" if reached else f"above the budget of {budget}: not reached"
    bound = (
        "No plan with this order of first executions is within the budget."
        if result.bound_overhead is None
        else f"No plan with this order of first executions adds less than {result.bound_overhead:.3%}."
    )
    return document(
        f"{name}: {len(set(result.plan.sequence))} operations",
        Table(("method", "peak", "within", "added time", "seconds"), tuple(rows)),
        f"peak: {peak}, {found}; {again} recomputations, {result.overhead(result.plan):+.3%} time. {bound}",
        f"strategy: {result.plan.strategy}; {result.termination.reason} in {format_seconds(result.solve_seconds)}",
    )


def curve_content(curve: RecomputeCurve, outcome: Outcome[RecomputeCurve]) -> dict[str, Any]:
    """The curve for `--json`."""
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
                "bound_overhead": _finite(curve.overhead(point.bound_seconds)),
                "strategy": point.strategy,
                "sequence": list(point.sequence),
            }
            for point in curve.points
        ],
    }


def curve_csv(curve: RecomputeCurve) -> str:
    """The curve as CSV, one budget a row; a bound that excludes all plans is `inf`."""
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for point in curve.points:
        times = (curve.overhead(point.seconds), curve.overhead(point.bound_seconds))
        writer.writerow((point.budget_bytes, point.peak_bytes, *(f"{t:.6f}" for t in times), point.strategy))
    return text.getvalue()


def curve_document(curve: RecomputeCurve, outcome: Outcome[RecomputeCurve], name: str) -> Document:
    """The curve as a table."""
    from neaptide.report.document import Table, document

    rows = []
    for point in curve.points:
        added, least = curve.overhead(point.seconds), curve.overhead(point.bound_seconds)
        share = f"{point.peak_bytes / curve.baseline_peak_bytes:.1%}" if curve.baseline_peak_bytes else ""
        budget, peak = format_bytes(point.budget_bytes), format_bytes(point.peak_bytes)
        rows.append((budget, peak, share, f"{added:+.2%}", f"{least:+.2%}", point.strategy))
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


def _methods(chosen: str, also: Sequence[str]) -> list[str]:
    """The strategy asked for, then those to compare with."""
    from neaptide.planner.graph_search import check_strategy
    from neaptide.planner.strategies import NAMES

    check_strategy(chosen, atomic=False)
    names = [chosen]
    for name in also:
        if name != _ALL:
            check_strategy(name, atomic=False)
        names += NAMES if name == _ALL else (name,)
    return list(dict.fromkeys(names))


def _solve(
    name: str, step: StepProblem, allowed: int | None, limits: Any, interrupt: threading.Event
) -> Outcome[PlannedSequence]:
    """What a strategy finds within some bytes; the lowest peak where none are given."""
    from neaptide.planner.objective import PlanningProblem
    from neaptide.planner.portfolio import plan_sequence
    from neaptide.planner.recompute.curve.least_memory import least_memory
    from neaptide.planner.strategies import strategy

    if name == _DEFAULT:
        if allowed is None:
            return least_memory(step, math.inf, limits, interrupt)
        return plan_sequence(step, allowed, limits, interrupt=interrupt)
    # A single strategy is asked for the lowest peak by a budget that no plan can be below.
    least = step.lower_bound_bytes if allowed is None else allowed
    return strategy(name)(PlanningProblem(step, least), limits, interrupt)


def _best(
    found: Mapping[str, Outcome[PlannedSequence]],
    before: PlannedSequence,
    allowed: int,
    bound_overhead: float | None,
) -> RecomputeResult:
    chosen = next(iter(found.values()))
    return RecomputeResult(
        chosen.require(),
        before.seconds,
        allowed,
        bound_overhead,
        chosen.termination,
        chosen.seconds,
        {name: (outcome.require(), outcome.seconds) for name, outcome in found.items()},
    )


def _bound_overhead(
    step: StepProblem,
    outcome: Outcome[PlannedSequence],
    before: PlannedSequence,
    allowed: int,
    interrupt: threading.Event,
) -> float | None:
    """Least overhead that is proved for the order of a plan; None when nothing fits."""
    from neaptide.outcome import LimitGuard, Limits
    from neaptide.planner.recompute.bounds.certificate import recompute_bound

    if allowed < step.lower_bound_bytes:
        return None
    plan = outcome.require()
    guard = LimitGuard(Limits(), interrupt)
    bound = recompute_bound(step, allowed, sequence=plan.sequence, guard=guard)
    if bound.is_infeasible:
        return None
    seconds = bound.seconds
    if plan.peak_with_workspace_bytes <= allowed:
        seconds = min(seconds, plan.seconds)
    return max(_overhead(seconds, before.seconds), 0.0)


def _overhead(seconds: float, baseline_seconds: float) -> float:
    return seconds / baseline_seconds - 1.0 if baseline_seconds else 0.0


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _in_parts(request: Request) -> int:
    """The curve where regions may run in parts."""
    from neaptide.cli.front import sweep_variants

    if Path(request.target).suffix == ".json":
        raise UsageError(
            "a recompute instance has no regions that could run in parts",
            next_step="leave --numerics close out, or give a program",
        )
    return sweep_variants(request)


def _step(request: Request) -> StepProblem:
    """The problem of an instance, or of the usual step of a program."""
    path = Path(request.target)
    if path.suffix == ".json":
        return _read_instance(path)
    return prepared_target(request).problem()


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

"""The commands that work on a program: profile, plan, run, compare, explain."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neaptide.budget import Budget
from neaptide.cli import exit_codes
from neaptide.cli.command import Request
from neaptide.cli.interrupts import asking_before_aborting
from neaptide.cli.options import budget_of, device_of, options_of
from neaptide.cli.target_files import write_result
from neaptide.errors import InfeasibleBudget, MissingExtra, TargetError, UsageError
from neaptide.extras import how_to_install
from neaptide.options import ComparisonOptions, PlanOptions, RunOptions, ShapesOptions, TrialOptions
from neaptide.reading import is_there, place_of
from neaptide.setting_readers import parse_dims, parse_shapes

if TYPE_CHECKING:
    from neaptide.plans import Plan
    from neaptide.policy.prepared_step import PreparedStep
    from neaptide.report.document import Document
    from neaptide.settings import Settings


def profile(request: Request) -> int:
    """Predicts what a step uses."""
    from neaptide.cli.targets import find_target
    from neaptide.plans import RangePeaks
    from neaptide.report.chart_file import save_chart
    from neaptide.report.profile_text import profile_document
    from neaptide.report.range_picture import range_chart

    require_torch()
    settings, console = request.settings, request.console
    if request.picture is not None:
        _check_range_picture(request.picture, settings)
    device = device_of(settings)
    with console.user_code():
        target = find_target(request.target, without_weights=device is not None)
        step, batch = target.build()
        from neaptide import api

        report = api.profile(
            step,
            batch,
            device=device,
            name=request.target,
            seed=settings.seed,
            refresh=settings.refresh,
            progress=console.progress,
            dynamic=parse_dims(settings.dynamic) if settings.dynamic else None,
            fit=settings.fit,
            curves=request.picture is not None,
        )
    if request.picture is not None and report.ranges is not None:
        fit = report.ranges.fit
        peaks = report.ranges.curves if fit is None else fit.curves
        save_chart(request.picture, range_chart(peaks or RangePeaks(()), title=request.target))
        console.progress(f"picture saved in {request.picture}")
    _deliver(request, report, lambda: profile_document(report))
    return exit_codes.DONE


def plan(request: Request) -> int:
    """Plans a step for a budget."""
    from neaptide.cli.targets import find_target
    from neaptide.plans import Plan
    from neaptide.report.plan_text import plan_document

    require_torch()
    settings, console = request.settings, request.console
    if request.picture is not None:
        _check_range_picture(request.picture, settings)
    kind = PlanOptions if settings.trials is None else TrialOptions
    options = options_of(settings, kind)
    try:
        with console.user_code():
            target = find_target(request.target)
            from neaptide import api

            if settings.trials is None:
                make: Callable[..., Plan] = partial(api.plan, *target.build())
            else:
                make = partial(api.plan_by_trials, target.build, trials=settings.trials, own_processes=True)
            with asking_before_aborting() as interrupt:
                found = make(
                    budget=budget_of(settings),
                    interrupt=interrupt,
                    progress=console.progress,
                    name=request.target,
                    **options,
                )
    except InfeasibleBudget as error:
        # Of all shapes, the plan of the largest alone is no answer.
        if isinstance(error.plan, Plan) and request.output is not None and not settings.dynamic:
            error.plan.save(request.output)
            console.note(f"the best plan found is in {request.output}")
        raise
    if request.output is not None:
        found.save(request.output)
        console.progress(f"plan saved in {request.output}")
    if request.picture is not None:
        _draw_ranges(request, found)
    if console.as_json:
        console.result(found.to_json().rstrip("\n"))
    else:
        console.document(plan_document(found, path=None if request.output is None else str(request.output)))
    return exit_codes.DONE


def run(request: Request) -> int:
    """Runs a plan on a fresh program."""
    from neaptide.cli.targets import find_target
    from neaptide.plans import Plan
    from neaptide.report.run_text import run_document

    require_torch()
    settings, console = request.settings, request.console
    assert request.plan is not None
    saved = Plan.load(request.plan)
    with console.user_code():
        target = find_target(request.target)
        from neaptide import api

        report = api.run(
            target.build,
            saved,
            steps=settings.steps,
            verify=bool(settings.verifies),
            seed=settings.seed,
            progress=console.progress,
            name=request.target,
            **options_of(settings, RunOptions),
        )
    _deliver(request, report, lambda: run_document(report))
    return exit_codes.DONE


def compare(request: Request) -> int:
    """Runs eager, the program as captured and a plan side by side."""
    from neaptide.cli.targets import find_target
    from neaptide.report.comparison_text import comparison_document, is_within_budget

    require_torch()
    settings, console = request.settings, request.console
    options = options_of(settings, ComparisonOptions)
    budget = budget_of(settings)
    if settings.dynamic:
        return _compare_shapes(request)
    with console.user_code():
        # With another device nothing is run, so nothing needs weights.
        target = find_target(request.target, without_weights=options["device"] is not None)
        from neaptide import api

        with asking_before_aborting() as interrupt:
            comparison = api.compare(
                target.build,
                budget=None if budget == Budget() else budget,
                also=settings.also,
                repeats=settings.repeats,
                eager=settings.eager,
                verify=settings.verifies is not False,
                interrupt=interrupt,
                progress=console.progress,
                name=request.target,
                own_processes=True,
                **options,
            )
    _deliver(request, comparison, lambda: comparison_document(comparison))
    return exit_codes.DONE if is_within_budget(comparison) else exit_codes.OVER_BUDGET


def _compare_shapes(request: Request) -> int:
    """Runs a plan for all shapes at a few of them, beside eager and padding."""
    from neaptide.cli.targets import find_target
    from neaptide.report.comparison_text import shapes_comparison_document

    settings, console = request.settings, request.console
    with console.user_code():
        target = find_target(request.target)
        from neaptide import api

        with asking_before_aborting() as interrupt:
            found = api.compare_shapes(
                target.build,
                budget=budget_of(settings),
                dynamic=parse_dims(settings.dynamic),
                at=parse_shapes(settings.at),
                repeats=settings.repeats,
                eager=settings.eager,
                verify=settings.verifies is not False,
                interrupt=interrupt,
                progress=console.progress,
                name=request.target,
                own_processes=True,
                **options_of(settings, ShapesOptions),
            )
    _deliver(request, found, lambda: shapes_comparison_document(found))
    return exit_codes.DONE


def explain(request: Request) -> int:
    """Says in words what a saved plan does, and draws its timeline."""
    from neaptide.plans import Plan
    from neaptide.report.chart_file import save_chart
    from neaptide.report.plan_text import plan_document, steady_program
    from neaptide.report.streams_picture import streams_chart

    if request.target.startswith("zoo:") or ".py" in request.target:
        from neaptide.cli.targets import with_factory

        program = with_factory(request.target)
        raise TargetError(
            f"{request.target!r} is a program, and only a plan can be explained",
            next_step=f"neaptide plan {program} --peak 60% -o plan.json, then neaptide explain plan.json",
        )
    if not is_there(request.target):
        raise TargetError(
            f"there is no plan file {request.target!r}",
            where=place_of(request.target),
            next_step="neaptide plan TARGET --peak 60% -o plan.json writes one",
        )
    saved = Plan.load(request.target)
    if request.picture is not None and saved.all_shapes is not None:
        _draw_ranges(request, saved)
    elif request.picture is not None:
        save_chart(request.picture, streams_chart(steady_program(saved), title=saved.name))
        request.console.progress(f"picture saved in {request.picture}")
    if request.console.as_json:
        request.console.result(saved.to_json().rstrip("\n"))
    else:
        request.console.document(plan_document(saved, path=request.target))
    return exit_codes.DONE


def _draw_ranges(request: Request, plan: Plan) -> None:
    """Draw the peak of the usual step over the range of shapes."""
    from neaptide.plans import RangePeaks
    from neaptide.report.chart_file import save_chart
    from neaptide.report.range_picture import range_chart

    assert request.picture is not None
    shapes = plan.all_shapes
    peaks = RangePeaks(()) if shapes is None else shapes.programs[0].peaks
    save_chart(request.picture, range_chart(peaks, title=plan.name))
    request.console.progress(f"picture saved in {request.picture}")


def _check_range_picture(path: Path, settings: Settings) -> None:
    """Refuse, before anything is captured, a picture that cannot be drawn."""
    from neaptide.report.chart_file import check_picture_path

    if not settings.dynamic:
        raise UsageError(
            "the picture is of peaks over a range, and no dim varies",
            next_step="name a dim and its range, such as --dynamic batch:1=16..4096",
        )
    check_picture_path(path)


def _deliver(request: Request, report: Any, make_document: Callable[[], Document]) -> None:
    """Prints a report, and writes it as JSON where `-o` says."""
    from neaptide.report.model import to_json

    if request.output is not None:
        write_result(request.output, to_json(report) + "\n")
        request.console.progress(f"report saved in {request.output}")
    if request.console.as_json:
        request.console.result(to_json(report))
    else:
        request.console.document(make_document())


def prepared_target(request: Request) -> PreparedStep:
    """The program of a target, captured."""
    from neaptide.cli.targets import find_target

    require_torch()
    console = request.console
    with console.user_code():
        step, batch = find_target(request.target).build()
        from neaptide.frontends.torch_step import capture_step
        from neaptide.policy.prepared_step import PreparedStep

        captured = capture_step(step, (batch,), name=request.target)
        return PreparedStep(captured, progress=console.progress)


def require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(
            "torch is not installed",
            why="a training step is captured and run with it",
            next_step=how_to_install("torch"),
        )

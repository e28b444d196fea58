"""The commands that work on a program: profile, plan, run, compare, explain."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neaptide.ask import THE_DEVICE
from neaptide.budget import Budget
from neaptide.cli.command import Request, budget_of, device_of, options_of
from neaptide.cli.files import is_model
from neaptide.cli.process import exit_codes
from neaptide.cli.process.interrupts import asking_before_aborting
from neaptide.errors import InfeasibleBudget, MissingExtra, TargetError, UsageError, how_to_install
from neaptide.files.reading import is_there, place_of
from neaptide.options import ComparisonOptions, PlanOptions, RunOptions, ShapesOptions, TrialOptions
from neaptide.settings import parse_dims, parse_shapes

if TYPE_CHECKING:
    from neaptide.plans import Plan, RangePeaks
    from neaptide.policy.prepared_step import PreparedStep
    from neaptide.settings import Settings


def profile(request: Request) -> int:
    """Predicts what a step uses."""
    if is_model(request.target):
        from neaptide.cli.model_files.commands import profile_model

        return profile_model(request)
    from neaptide.cli.targets import find_target
    from neaptide.report.profile_text import profile_document

    require_torch()
    settings, console = request.settings, request.console
    if request.picture is not None:
        _check_range_picture(request.picture, settings)
    device = device_of(settings)
    with console.user_code():
        target = find_target(request.target, device)
        step, batch = target.build()
        from neaptide import api

        if settings.fit == THE_DEVICE and device is not None:
            return _fits(request, step, batch, device)
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
    if report.ranges is not None:
        fit = report.ranges.fit
        _draw_ranges(request, report.ranges.curves if fit is None else fit.curves, request.target)
    request.deliver(report, lambda: profile_document(report), noun="report")
    return exit_codes.DONE


def _fits(request: Request, step: Any, batch: Any, device: str) -> int:
    """Says whether a step fits a device, and what would make it fit."""
    from neaptide import api
    from neaptide.report.fit_text import fit_document

    report = api.fits(step, batch, device=device, name=request.target, progress=request.console.progress)
    request.deliver(report, lambda: fit_document(report), noun="report")
    return exit_codes.DONE if report.fits else exit_codes.OVER_BUDGET


def plan(request: Request) -> int:
    """Plans a step for a budget."""
    if is_model(request.target):
        from neaptide.cli.model_files.commands import plan_model

        return plan_model(request)
    from neaptide.cli.targets import find_target
    from neaptide.plans import Plan
    from neaptide.report.plan_text import plan_document

    require_torch()
    settings, console = request.settings, request.console
    if request.picture is not None:
        _check_range_picture(request.picture, settings)
    options = options_of(settings, PlanOptions if settings.trials is None else TrialOptions)
    try:
        with console.user_code():
            target = find_target(request.target, device_of(settings))
            from neaptide import api

            if settings.trials is None:
                make: Callable[..., Plan] = partial(api.plan, *target.build())
            else:
                make = partial(api.plan_by_trials, target.build, trials=settings.trials, own_processes=True)
            with asking_before_aborting() as interrupt:
                found = make(budget=budget_of(settings), **_how(request, interrupt), **options)
    except InfeasibleBudget as error:
        # Of all shapes, the plan of the largest alone is no answer.
        if isinstance(error.plan, Plan) and request.output is not None and not settings.dynamic:
            error.plan.save(request.output)
            console.note(f"the best plan found is in {request.output}")
        raise
    if request.output is not None:
        found.save(request.output)
        console.progress(f"plan saved in {request.output}")
    _draw_ranges(request, _peaks_of(found), found.name)
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
    request.deliver(report, lambda: run_document(report), noun="report")
    return exit_codes.DONE


def compare(request: Request) -> int:
    """Runs eager, the program as captured and a plan side by side; or a plan for all shapes at a few of them."""
    from neaptide.cli.targets import find_target
    from neaptide.report.comparison_text import (
        comparison_document,
        is_within_budget,
        shapes_comparison_document,
    )

    require_torch()
    settings, console = request.settings, request.console
    options = options_of(settings, ShapesOptions if settings.dynamic else ComparisonOptions)
    budget = budget_of(settings)
    measured = {
        "repeats": settings.repeats,
        "eager": settings.eager,
        "verify": settings.verifies is not False,
        "own_processes": True,
    }
    with console.user_code():
        # With another device nothing is run, so nothing needs weights.
        target = find_target(request.target, None if settings.dynamic else options["device"])
        from neaptide import api

        with asking_before_aborting() as interrupt:
            how = {**measured, **_how(request, interrupt), **options}
            if settings.dynamic:
                dims, shapes = parse_dims(settings.dynamic), parse_shapes(settings.at)
                found = api.compare_shapes(target.build, budget=budget, dynamic=dims, at=shapes, **how)
            else:
                asked = None if budget == Budget() else budget
                comparison = api.compare(target.build, budget=asked, also=settings.also, **how)
    if settings.dynamic:
        request.deliver(found, lambda: shapes_comparison_document(found), noun="report")
        return exit_codes.DONE
    request.deliver(comparison, lambda: comparison_document(comparison), noun="report")
    return exit_codes.DONE if is_within_budget(comparison) else exit_codes.OVER_BUDGET


def explain(request: Request) -> int:
    """Says in words what a saved plan does, and draws its timeline."""
    from neaptide.plans import Plan, PlannedProgram
    from neaptide.report.charts.pictures import streams_chart
    from neaptide.report.plan_text import plan_document

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
    main = saved.main
    if isinstance(main, PlannedProgram):
        request.draw(lambda: streams_chart(main, title=saved.name))
    else:
        _draw_ranges(request, _peaks_of(saved), saved.name)
    request.deliver(
        saved.to_json().rstrip("\n"), lambda: plan_document(saved, path=request.target), noun="plan"
    )
    return exit_codes.DONE


def _how(request: Request, interrupt: Any) -> dict[str, Any]:
    """What every function that plans is told."""
    return {"interrupt": interrupt, "progress": request.console.progress, "name": request.target}


def _peaks_of(plan: Plan) -> RangePeaks | None:
    """Peaks of the usual step over the range of shapes; None of a plan for one shape."""
    return None if plan.all_shapes is None else plan.all_shapes.programs[0].peaks


def _draw_ranges(request: Request, peaks: RangePeaks | None, title: str) -> None:
    from neaptide.plans import RangePeaks
    from neaptide.report.charts.pictures import range_chart

    request.draw(lambda: range_chart(peaks or RangePeaks(()), title=title))


def _check_range_picture(path: Path, settings: Settings) -> None:
    """Refuse, before anything is captured, a picture that cannot be drawn."""
    from neaptide.report.charts.file import check_picture_path

    if not settings.dynamic:
        raise UsageError(
            "the picture is of peaks over a range, and no dim varies",
            next_step="name a dim and its range, such as --dynamic batch:1=16..4096",
        )
    check_picture_path(path)


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
    """Refuse to work on a program where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(
            "torch is not installed",
            why="a training step is captured and run with it",
            next_step=how_to_install("torch"),
        )

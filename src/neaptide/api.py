"""The public functions that tie the rooms together: profile, plan, apply, compile_step, compare, run, explain."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from neaptide.errors import InfeasibleBudget, NumericsError, PlanMismatch
from neaptide.frontends.torch_step import CapturedStep, capture_step
from neaptide.ir.schedule import Schedule
from neaptide.ir.serial import fingerprint
from neaptide.outcome import Limits
from neaptide.plans import Plan
from neaptide.planner.budget import Budget
from neaptide.planner.plan_graph import DEFAULT_STRATEGY
from neaptide.report.model import Comparison, ProfileReport, RunReport
from neaptide.runtime import comparing
from neaptide.runtime.planned_step import OnMismatch, PlannedStep, PlannedVariant
from neaptide.runtime.prepared_step import PreparedStep, Progress, SearchOptions, StepPlan, prepare, versions

Step = Callable[..., Any]
Factory = Callable[[], tuple[Step, Any]]

DEFAULT_TIME_LIMIT_S = 20.0


def profile(
    step: Step,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    state: Any = None,
    device: str | None = None,
    name: str = "",
    seed: int = 0,
    audit: bool = True,
    progress: Progress | None = None,
) -> ProfileReport:
    """Predict the peak of a training step without running it.

    Args:
        step: the training step; `args` and `kwargs` are what it is called with.
        state: modules, optimizers and tensors that cannot be found by looking through `step`.
        device: name of a preset (see `neaptide devices`): says whether the step fits there. Nothing of model size is
            allocated. None means this machine.
        name: for the report.
        seed: recorded.
        audit: run distinct operations alone, one at a time, to learn their workspace and time; with a preset, or
            for a model without bytes (`device="meta"`), they are estimated instead.
        progress: told what is going on.

    Raises:
        CaptureError: the step cannot be captured; names the user's line.
    """
    from neaptide.report.profiling import profile_report

    prepared = prepare(
        step, args, kwargs, state=state, device=device, run_operations=audit, name=name, progress=progress
    )
    return profile_report(prepared, has_device=device is not None, seed=seed)


def plan(
    step: Step,
    *args: Any,
    budget: Budget | str | int,
    kwargs: Mapping[str, Any] | None = None,
    state: Any = None,
    device: str | None = None,
    strategy: str = DEFAULT_STRATEGY,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    work_limit: int | None = None,
    seed: int = 0,
    interrupt: threading.Event | None = None,
    progress: Progress | None = None,
    atomic: bool = False,
    name: str = "",
) -> Plan:
    """Plan a training step so that its peak stays within a budget at the least time.

    The user's objects are not changed and nothing of model size is allocated.

    Args:
        step: the training step; `args` and `kwargs` are what it is called with.
        budget: a `Budget`, or what its `peak` takes: `"20GiB"`, `"60%"`, `"-30%"`, a number of bytes.
        state: see `profile`; `device` and `progress` too.
        strategy: `default`, or one of `planner.strategies.NAMES`.
        time_limit_s: of the search of each program; None for no limit.
        work_limit: in changes tried; with a work limit and no time limit the plan is the same on every machine.
        seed: of the search.
        interrupt: set it to get the best plan so far.
        atomic: keep every update behind everything that can fail; costs memory, and says how much.
        name: of the plan.

    Raises:
        InfeasibleBudget: no plan within the budget was found; carries the best (`.plan`) and what is alive at it.
        CaptureError: the step cannot be captured; names the user's line.
        InvalidBudget: the budget is no budget.
    """
    options = _options(budget, strategy, time_limit_s, work_limit, seed, atomic, interrupt)
    prepared = prepare(step, args, kwargs, state=state, device=device, name=name, progress=progress)
    found = prepared.plan(options)
    _require_within_budget(prepared, found)
    return found.plan


def apply(
    plan: Plan,
    step: Step,
    *,
    state: Any = None,
    on_mismatch: OnMismatch = "replan",
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
) -> PlannedStep:
    """A callable that runs a step under a plan; `plan.apply(step)` is the same.

    The step is captured at the first call and must be the program that the plan was made for.

    Args:
        plan: made here, on another machine, or read from a file.
        step: the training step, on the user's own module and optimizer.
        state: see `profile`.
        on_mismatch: what later calls do whose shapes, flags or hyper-parameters differ: `replan` within the same
            bytes, run the step as it is (`eager`), or raise `StepMismatch` (`error`).
        time_limit_s: for planning again.

    Raises (at the first call):
        PlanMismatch: the step is another program; says what differs.
    """

    def make(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PlannedVariant:
        captured = capture_step(step, args, kwargs, state=state, name=plan.name)
        return _matched(plan, captured, runner.plan is None, time_limit_s)

    runner = PlannedStep(step, make, on_mismatch=on_mismatch)
    return runner


def compile_step(
    step: Step,
    *,
    budget: Budget | str | int,
    state: Any = None,
    on_mismatch: OnMismatch = "replan",
    strategy: str = DEFAULT_STRATEGY,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    work_limit: int | None = None,
    seed: int = 0,
    atomic: bool = False,
    progress: Progress | None = None,
) -> PlannedStep:
    """Plan and apply at the first call: `fast = compile_step(step, budget="60%"); loss = fast(batch)`.

    See `plan` for the arguments; calls of other shapes are planned when they first come.
    """
    options = _options(budget, strategy, time_limit_s, work_limit, seed, atomic, None)

    def make(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PlannedVariant:
        prepared = prepare(step, args, kwargs, state=state, progress=progress)
        found = prepared.plan(options)
        _require_within_budget(prepared, found)
        return found.variant

    return PlannedStep(step, make, on_mismatch=on_mismatch)


def compare(
    factory: Factory,
    *,
    budget: Budget | str | int | None = None,
    also: Sequence[str] = (),
    repeats: int = 5,
    device: str | None = None,
    eager: bool = True,
    verify: bool = True,
    strategy: str = DEFAULT_STRATEGY,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    work_limit: int | None = None,
    seed: int = 0,
    interrupt: threading.Event | None = None,
    progress: Progress | None = None,
    name: str = "",
) -> Comparison:
    """Run a step as it is, as captured, and as planned, and put predictions beside measurements.

    Each program runs on fresh objects from the factory. Numbers are compared in a verify run of three steps.

    Args:
        factory: no arguments; returns `(step, batch)`, the same for the same random seed.
        budget: None compares eager and baseline only.
        also: names of further strategies, each a row of its own.
        repeats: timed steps of each program, taking turns; 0 measures no time.
        eager: False leaves the eager run out, for what does not fit here.
        verify: compare numbers with eager (needs `eager`).
        device: a preset to plan for; then nothing is run and all numbers are predictions.

    Raises:
        InfeasibleBudget: as `plan`, before anything is run.
    """
    from neaptide.report.comparison import compare_programs

    search = None
    if budget is not None:
        search = _options(budget, strategy, time_limit_s, work_limit, seed, atomic=False, interrupt=interrupt)
    step, batch = comparing.build(factory, seed)
    prepared = prepare(step, (batch,), device=device, name=name, progress=progress)
    plans: dict[str, StepPlan] = {}
    began = time.perf_counter()
    if search is not None:
        plans["plan"] = prepared.plan(search)
        _require_within_budget(prepared, plans["plan"])
        for other in also:
            plans[other] = prepared.plan(replace(search, strategy=other))
    plan_seconds = time.perf_counter() - began
    return compare_programs(
        factory,
        prepared,
        plans,
        repeats=0 if device is not None else repeats,
        run=device is None,
        eager=eager,
        verify=verify and eager,
        plan_seconds=plan_seconds,
        seed=seed,
        progress=progress,
    )


def run(
    factory: Factory,
    plan: Plan,
    *,
    steps: int = 3,
    verify: bool = False,
    seed: int = 0,
    on_mismatch: OnMismatch = "error",
    progress: Progress | None = None,
    name: str = "",
) -> RunReport:
    """Run some steps under a plan and measure them.

    Args:
        factory: as for `compare`.
        plan: for this program.
        steps: how many, at least 1.
        verify: compare three steps with eager's first.

    Raises:
        PlanMismatch: the plan is for another program.
        NumericsError: the numbers differ from eager's.
    """
    say = progress or (lambda _text: None)
    step, batch = comparing.build(factory, seed)
    say("capturing the step")
    captured = capture_step(step, (batch,), name=name or plan.name)
    variant = _matched(plan, captured, is_first=True, time_limit_s=DEFAULT_TIME_LIMIT_S)
    make = comparing.rebind(variant)
    differences: dict[str, float] = {}
    equal = None
    if verify:
        say("verifying against eager")
        expected = comparing.verify_eager(factory, seed)
        outcome, _ = comparing.verify_planned(factory, seed, make, expected)
        differences, equal = outcome.max_abs_diff, outcome.bitwise_equal
        if not equal:
            worst = ", ".join(f"{group}: {tensor}" for group, tensor in outcome.worst.items())
            raise NumericsError(
                "the planned step gives other numbers than eager",
                where=worst or "only the sign of zeros or the random state differ",
                why="; ".join(f"{group} by up to {d:.3g}" for group, d in differences.items() if d),
                next_step="report this with the plan; run the step without a plan meanwhile",
            )
    contestant_losses: list[float] = []
    runner = PlannedStep(step, lambda args, kwargs: make(step, args), variant, on_mismatch=on_mismatch)
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        loss = comparing.one_number(runner(batch))
        seconds.append(time.perf_counter() - began)
        if loss is not None:
            contestant_losses.append(loss)
    say("measuring memory")
    memory = comparing.measure_memory(runner, batch)
    predicted = variant_predictions(variant)
    return RunReport(
        name=name or plan.name,
        steps=steps,
        step_seconds=statistics.median(seconds),
        losses=tuple(contestant_losses),
        predicted_peak_bytes=predicted.peak_bytes,
        measured_peak_bytes=memory.measured_peak_bytes,
        predicted_peak_with_workspace_bytes=predicted.peak_with_workspace_bytes,
        measured_allocator_peak_bytes=memory.measured_allocator_peak_bytes,
        max_abs_diff=differences,
        bitwise_equal=equal,
        calls=runner.counts.describe(),
        versions=versions(),
        seed=seed,
    )


def explain(plan: Plan) -> str:
    """What a plan does and why, as text; `plan.explain()` is the same."""
    from neaptide.report.plan_text import plan_text

    return plan_text(plan)


def variant_predictions(variant: PlannedVariant) -> Any:
    """Predictions of a usual step of a plan."""
    assert variant.plan is not None
    return variant.plan.program("steady").predictions


def _options(
    budget: Budget | str | int,
    strategy: str,
    time_limit_s: float | None,
    work_limit: int | None,
    seed: int,
    atomic: bool,
    interrupt: threading.Event | None,
) -> SearchOptions:
    asked = budget if isinstance(budget, Budget) else Budget(peak=budget)
    limits = Limits(time_s=time_limit_s, work=work_limit, seed=seed)
    return SearchOptions(asked, strategy, limits, atomic, interrupt)


def _require_within_budget(prepared: PreparedStep, found: StepPlan) -> None:
    program = found.plan.program("steady")
    predicted = program.predictions
    longest = Budget(peak=None, latency=found.plan.budget.latency).resolve_latency(predicted.baseline_seconds)
    if predicted.peak_with_workspace_bytes <= program.budget_bytes:
        if longest is None or predicted.seconds <= longest:
            return
        why = f"the fastest plan found takes {predicted.seconds / predicted.baseline_seconds - 1:+.1%} over the baseline"
    else:
        why = program.termination.detail
    from neaptide.report.profiling import infeasible

    raise infeasible(prepared, found, why)


def _matched(plan: Plan, captured: CapturedStep, is_first: bool, time_limit_s: float | None) -> PlannedVariant:
    """The schedules of a plan for a capture; programs that the plan lacks are planned for the same bytes."""
    by_fingerprint = {program.fingerprint: program for program in plan.programs}
    steady = fingerprint(captured.steady.graph)
    if is_first and steady not in by_fingerprint:
        from neaptide.runtime.prepared_step import described_signature

        then = {name: value for name, value in (plan.signature or [])}
        now = {name: value for name, value in described_signature(captured)}
        differing = [
            f"{key} is {now.get(key, 'gone')}, was {then.get(key, 'not there')}"
            for key in {**then, **now}
            if then.get(key) != now.get(key)
        ]
        raise PlanMismatch(
            f"the plan for {plan.name or 'another step'} does not fit this step",
            why="; ".join(differing[:4]) or "shapes and flags agree but the operations differ",
            next_step="plan this step, or use the model, batch shape and versions that the plan was made for",
        )
    if all(fingerprint(program.graph) in by_fingerprint for program in captured.programs):
        schedules = tuple(
            Schedule.from_nodes(program.graph, by_fingerprint[fingerprint(program.graph)].sequence)
            for program in captured.programs
        )
        return PlannedVariant(captured, schedules, atomic=bool((plan.guards or {}).get("atomic")), plan=plan)
    prepared = PreparedStep(captured)
    limits = Limits(time_s=time_limit_s, seed=plan.seed)
    budget = Budget(peak=plan.programs[0].budget_bytes)
    atomic = bool((plan.guards or {}).get("atomic"))
    found = prepared.plan(SearchOptions(budget, limits=limits, atomic=atomic))
    if not is_first:
        _require_within_budget(prepared, found)
        return found.variant
    schedules = tuple(
        Schedule.from_nodes(program.graph, by_fingerprint[key].sequence) if key in by_fingerprint else made
        for program, made in zip(captured.programs, found.variant.schedules, strict=True)
        for key in [fingerprint(program.graph)]
    )
    return replace(found.variant, schedules=schedules, plan=plan)

"""The public functions that tie the rooms together: profile, plan, apply, compile_step, compare, run, explain."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from neaptide.errors import NumericsError, UsageError
from neaptide.outcome import Limits
from neaptide.planner.budget import Budget
from neaptide.planner.graph_search import DEFAULT_STRATEGY, check_strategy
from neaptide.plans import Plan
from neaptide.report.model import Comparison, ProfileReport, RunReport
from neaptide.runtime import contestants, verification
from neaptide.runtime.arena_plan import ArenaOptions, arena_options
from neaptide.runtime.arguments import check_on_mismatch, check_plan
from neaptide.runtime.capturing import capture
from neaptide.runtime.evicting import EvictionOptions, eviction_options
from neaptide.runtime.plan_matching import fits, matched, same_budget
from neaptide.runtime.planned_step import OnMismatch, PlannedStep, PlannedVariant
from neaptide.runtime.prepared_step import (
    PreparedStep,
    Progress,
    SearchOptions,
    StepPlan,
    prepare,
    versions,
)

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
    refresh: bool = False,
    progress: Progress | None = None,
) -> ProfileReport:
    """Predict the peak of a training step without running it.

    Args:
        step: the training step.
        *args: what it is called with: tensors whose shapes, dtypes and devices are as in training.
        kwargs: further arguments of it, by name.
        state: modules, optimizers and tensors that cannot be found by looking through `step`.
        device: name of a preset (see `neaptide devices`): says whether the step fits there. Nothing of model size is
            allocated. None means this machine.
        name: for the report.
        seed: recorded.
        audit: run distinct operations alone, one at a time, to learn their workspace and time; with a preset, or
            for a model without bytes (`device="meta"`), they are estimated instead.
        refresh: run those again that were run before. Results are kept in a cache for this and later calls; they are
            worth renewing when the machine was busy with other things at the time.
        progress: told what is going on.

    Raises:
        CaptureError: the step cannot be captured; names the user's line.
    """
    from neaptide.report.profiling import profile_report

    prepared = prepare(
        step,
        args,
        kwargs,
        state=state,
        device=device,
        run_operations=audit,
        name=name,
        progress=progress,
        refresh=refresh,
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
    allow_nondeterministic: bool = False,
    name: str = "",
) -> Plan:
    """Plan a training step so that its peak stays within a budget at the least time.

    The user's objects are not changed and nothing of model size is allocated.

    Args:
        step: the training step.
        *args: what it is called with: tensors whose shapes, dtypes and devices are as in training.
        kwargs: further arguments of it, by name.
        budget: a `Budget`, or what its `peak` takes: `"20GiB"`, `"60%"`, `"-30%"`, a number of bytes. With
            `Budget(None)` nothing is recomputed: the lowest peak found by order alone, at no extra time; but where
            the step's own `torch.utils.checkpoint` is lower than that, it stays.
        state: modules, optimizers and tensors that cannot be found by looking through `step`.
        device: name of a preset to plan for; costs are then estimated. None means this machine.
        strategy: `default`, or one of `planner.strategies.NAMES`.
        time_limit_s: of the search of each program; None for no limit.
        work_limit: in changes tried. With a work limit, no time limit and the same costs, the same seed gives the
            same plan file byte for byte: always with `device`, and here while the cache of measured costs is kept.
        seed: of the search.
        interrupt: set it to get the best plan so far.
        progress: told what is going on.
        atomic: keep every update behind everything that can fail, so that a step that dies in its forward or
            backward leaves the model as it was; the plan says what that costs.
        allow_nondeterministic: recompute operations whose kernels give other bits on every run as well (sums by
            atomic additions on a GPU); the numbers then differ from eager's as two eager runs differ.
        name: of the plan.

    Raises:
        InfeasibleBudget: no plan within the budget was found; carries the best (`.plan`) and what is alive at it.
        CaptureError: the step cannot be captured; names the user's line.
        InvalidBudget: the budget is no budget.
        UsageError: no strategy or device of that name, or a factory instead of a step.
    """
    options = _options(budget, strategy, time_limit_s, work_limit, seed, atomic, interrupt)
    prepared = prepare(
        step,
        args,
        kwargs,
        state=state,
        device=device,
        name=name,
        progress=progress,
        allow_nondeterministic=allow_nondeterministic,
    )
    return _plan_within_budget(prepared, options).plan


def apply(
    plan: Plan | str | Path,
    step: Step,
    *,
    state: Any = None,
    on_mismatch: OnMismatch = "replan",
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    arena: bool | ArenaOptions = False,
    allow_nondeterministic: bool = False,
) -> PlannedStep:
    """A callable that runs a step under a plan; `plan.apply(step)` is the same.

    The step is captured at the first call and must be the program that the plan was made for. The plan is then judged
    beside it: its order must be legal, and its bytes those that the step gives.

    Args:
        plan: made here, on another machine, or the path of its file.
        step: the training step, on the user's own module and optimizer.
        state: see `profile`.
        on_mismatch: what later calls do whose shapes, flags or hyper-parameters differ: `replan` within the same
            bytes, run the step as it is (`eager`), or raise `StepMismatch` (`error`).
        time_limit_s: for planning again.
        arena: run inside one block of memory, every result at a planned address; `ArenaOptions` say how.
        allow_nondeterministic: needed for a plan that was made with it: a file cannot allow itself other bits.

    Raises:
        UsageError: neither a plan nor a path, or an unknown `on_mismatch`.
        PlanError: there is no such file, or it is no plan; at the first call: it is not legal for this step, or its
            numbers are not this step's.
        PlanMismatch: at the first call: the step is another program; says what differs.
        InfeasibleBudget: at a later call of other shapes: no plan within the same bytes was found.
    """
    check_on_mismatch(on_mismatch)
    return _runner(check_plan(plan), step, state, on_mismatch, time_limit_s, arena, allow_nondeterministic)


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
    allow_nondeterministic: bool = False,
    progress: Progress | None = None,
    arena: bool | ArenaOptions = False,
    eviction: str | EvictionOptions | None = None,
) -> PlannedStep:
    """A callable that plans a step when it is first called, and runs it under the plan from then on.

    Example: `fast = neaptide.compile_step(step, budget="60%")`, then `loss = fast(batch)` in the training loop.
    The arguments are those of `plan` and `apply`. Calls of other shapes are planned when they first come. They may
    use the bytes that the first plan was allowed, so a small last batch need not reach a share of its own; a share
    such as `"60%"` gives a larger batch that share of its own baseline.

    With `eviction="dtr"`, or another name of `planner.eviction.policy.HEURISTICS`, nothing is planned: the step runs in
    its own order, operation by operation, and when the budget is reached a policy decides what is let go and made
    again later (Kirisame et al., ICLR 2021). `EvictionOptions` say how.

    Raises:
        UsageError: an unknown strategy, `on_mismatch` or way to evict, or eviction together with a strategy, with
            `atomic`, with an arena or with a budget's latency.
        InfeasibleBudget: at a call: no plan within its bytes was found.
    """
    check_on_mismatch(on_mismatch)
    options = _options(budget, strategy, time_limit_s, work_limit, seed, atomic, None)
    evicting = eviction_options(
        eviction,
        beside={
            "a strategy": options.strategy != DEFAULT_STRATEGY,
            "atomic": options.atomic,
            "an arena": bool(arena),
            "a latency": options.budget.latency is not None,
        },
    )
    first_bytes = 0

    def make(args: tuple[Any, ...], kwargs: Mapping[str, Any], changing: frozenset[str]) -> PlannedVariant:
        nonlocal first_bytes
        prepared = prepare(
            step,
            args,
            kwargs,
            state=state,
            progress=progress,
            changing=changing,
            allow_nondeterministic=allow_nondeterministic,
        )
        allowed = replace(options, least_bytes=first_bytes)
        if evicting is not None:
            variant = prepared.evicting(allowed, evicting)
            first_bytes = first_bytes or variant.evictions[0].budget_bytes
            return variant
        found = _plan_within_budget(prepared, allowed)
        first_bytes = first_bytes or found.plan.programs[0].budget_bytes
        return _placed(prepared, found.variant, arena)

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
    allow_nondeterministic: bool = False,
    name: str = "",
    arena: bool | ArenaOptions = False,
) -> Comparison:
    """Run a step as it is, as captured, and as planned, and put predictions beside measurements.

    Each program runs on fresh objects from the factory. Numbers are compared in a verify run of three steps. Where the
    budget is not reached, the row `plan` is the best plan found, and `budget_missed` of the comparison says so.

    Args:
        factory: no arguments; returns `(step, batch)`, the same for the same random seed.
        budget: as for `plan`; None plans nothing: eager and baseline only, and the rows of `also`.
        also: names of further strategies, each a row of its own.
        repeats: timed steps of each program, taking turns; 0 measures no time.
        eager: False leaves the eager run out, for what does not fit here.
        verify: compare numbers with eager (needs `eager`).
        device: a preset to plan for; then nothing is run and all numbers are predictions.
        strategy: of the row `plan`; this and the limits that follow are as for `plan`.
        time_limit_s: of each search.
        work_limit: of each search.
        seed: of the searches, of the factory and of the runs.
        interrupt: set it to end the searches with the best plans so far; nothing is run then.
        progress: told what is going on.
        allow_nondeterministic: as for `plan`.
        name: for the report.
        arena: add a row `arena`: the plan, or the baseline where there is none, as `apply(arena=True)` runs it.

    Raises:
        UsageError: no strategy or device of that name, a step instead of a factory, or an arena for another device.
    """
    from neaptide.report.comparison import compare_programs
    from neaptide.report.profiling import over_budget

    asked = Budget(None) if budget is None else budget
    search = _options(asked, strategy, time_limit_s, work_limit, seed, atomic=False, interrupt=interrupt)
    for other in also:
        check_strategy(other, atomic=False)
    step, batch = contestants.build(factory, seed)
    prepared = prepare(
        step,
        (batch,),
        device=device,
        name=name,
        progress=progress,
        allow_nondeterministic=allow_nondeterministic,
    )
    plans: dict[str, StepPlan] = {}
    began = time.perf_counter()
    if budget is not None:
        plans["plan"] = prepared.plan(search)
    for other in also:
        plans[other] = prepared.plan(replace(search, strategy=other))
    plan_seconds = time.perf_counter() - began
    is_interrupted = interrupt is not None and interrupt.is_set()
    runs = device is None and not is_interrupted
    return compare_programs(
        factory,
        prepared,
        plans,
        repeats=repeats if runs else 0,
        run=runs,
        eager=eager,
        verify=verify and eager,
        plan_seconds=plan_seconds,
        seed=seed,
        progress=progress,
        arena=None if is_interrupted else arena_options(arena),
        missed=over_budget(prepared, plans["plan"]) if "plan" in plans else None,
        more_notes=("interrupted, so nothing was run",) if is_interrupted else (),
    )


def run(
    factory: Factory,
    plan: Plan | str | Path,
    *,
    steps: int = 3,
    verify: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
    name: str = "",
    arena: bool | ArenaOptions = False,
    allow_nondeterministic: bool = False,
) -> RunReport:
    """Run some steps under a plan and measure them.

    Args:
        factory: as for `compare`.
        plan: for this program, or the path of its file.
        steps: how many, at least 1.
        verify: compare three steps with eager's first.
        seed: of the factory and the runs.
        progress: told what is going on.
        name: for the report.
        arena: as for `apply`.
        allow_nondeterministic: as for `apply`.

    Raises:
        PlanMismatch: the plan is for another program.
        PlanError: the plan is not legal for this program, or its numbers are not this program's.
        NumericsError: the numbers differ from eager's.
        UsageError: no step to run, a step instead of a factory, or no plan.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError(f"cannot run {steps!r} steps", next_step="run at least one")
    plan = check_plan(plan)
    say = progress or (lambda _text: None)
    step, batch = contestants.build(factory, seed)
    say("capturing the step")
    captured = capture(step, (batch,), name=name or plan.name)
    variant = matched(plan, captured, DEFAULT_TIME_LIMIT_S, allow_nondeterministic=allow_nondeterministic)
    if arena:
        variant = _placed(PreparedStep(captured, progress=progress), variant, arena)
    differences: dict[str, float] = {}
    equal = None
    if verify:
        say("verifying against eager")
        expected = verification.verify_eager(factory, seed)
        outcome, _ = verification.verify_planned(factory, seed, contestants.rebind(variant), expected)
        differences, equal = outcome.max_abs_diff, outcome.bitwise_equal
        if not equal:
            worst = ", ".join(f"{group}: {tensor}" for group, tensor in outcome.worst.items())
            raise NumericsError(
                "the planned step gives other numbers than eager",
                where=worst or "only the sign of zeros or the random state differ",
                why="; ".join(f"{group} by up to {d:.3g}" for group, d in differences.items() if d),
                next_step="report this with the plan; run the step without a plan meanwhile",
            )
    runner = PlannedStep(step, contestants.never_again, variant, on_mismatch="error")
    losses: list[float] = []
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        loss = contestants.one_number(runner(batch))
        seconds.append(time.perf_counter() - began)
        if loss is not None:
            losses.append(loss)
    say("measuring memory")
    memory = contestants.measure_memory(runner, batch)
    predicted = runner.arena or plan.program("steady").predictions
    return RunReport(
        name=name or plan.name,
        steps=steps,
        step_seconds=statistics.median(seconds),
        losses=tuple(losses),
        predicted_peak_bytes=predicted.peak_bytes,
        measured_peak_bytes=memory.measured_peak_bytes,
        predicted_peak_with_workspace_bytes=predicted.peak_with_workspace_bytes,
        measured_allocator_peak_bytes=memory.measured_allocator_peak_bytes,
        max_abs_diff=differences,
        bitwise_equal=equal,
        calls=runner.counts.describe(),
        versions=versions(),
        seed=seed,
        arena=runner.arena,
    )


def explain(plan: Plan | str | Path) -> str:
    """What a plan does and why, as text; `plan.explain()` is the same.

    Args:
        plan: a plan, or the path of its file.

    Raises:
        PlanError: there is no such file, or it is no plan.
        UsageError: neither a plan nor a path was given.
    """
    from neaptide.report.plan_text import plan_text

    return plan_text(check_plan(plan), path=None if isinstance(plan, Plan) else str(plan))


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
    check_strategy(strategy, atomic=atomic)
    limits = Limits(time_s=time_limit_s, work=work_limit, seed=seed)
    return SearchOptions(asked, strategy, limits, atomic, interrupt)


def _plan_within_budget(prepared: PreparedStep, options: SearchOptions) -> StepPlan:
    """A plan that keeps to its budget.

    Raises:
        InfeasibleBudget: the best plan found does not.
    """
    from neaptide.report.profiling import over_budget

    found = prepared.plan(options)
    error = over_budget(prepared, found)
    if error is not None:
        raise error
    return found


def _placed(prepared: PreparedStep, variant: PlannedVariant, arena: bool | ArenaOptions) -> PlannedVariant:
    """A variant inside arenas, where they are wanted."""
    options = arena_options(arena)
    return variant if options is None else prepared.in_arenas(variant, options)


def _runner(
    plan: Plan,
    step: Step,
    state: Any,
    on_mismatch: OnMismatch,
    time_limit_s: float | None,
    arena: bool | ArenaOptions,
    allow_nondeterministic: bool,
) -> PlannedStep:
    """A step under a plan. Its first capture must fit the plan; later ones are planned for the same bytes."""
    has_begun = False
    allowed = plan.allow_nondeterministic and allow_nondeterministic

    def make(args: tuple[Any, ...], kwargs: Mapping[str, Any], changing: frozenset[str]) -> PlannedVariant:
        nonlocal has_begun
        captured = capture(step, args, kwargs, state=state, name=plan.name, changing=changing)
        prepared = PreparedStep(captured, allow_nondeterministic=allowed)
        if not has_begun or fits(plan, captured):
            found = matched(plan, captured, time_limit_s, allow_nondeterministic=allowed)
            first = _placed(prepared, found, arena)
            has_begun = True
            return first
        return _placed(
            prepared, _plan_within_budget(prepared, same_budget(plan, time_limit_s)).variant, arena
        )

    return PlannedStep(step, make, on_mismatch=on_mismatch)

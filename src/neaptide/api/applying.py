"""Steps that run under a plan: one that there is, or one that is made when they are first called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from neaptide.api.search_options import open_choice, placed, plan_within_budget, search_options
from neaptide.exclusions import asked_for, refuse_exclusions
from neaptide.frontends.dims.dynamic_dims import Dynamic
from neaptide.frontends.programs.captured import CapturedStep
from neaptide.movers.slow_memory import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.planner.budget import Budget
from neaptide.planner.points.decide import policy
from neaptide.plans import Plan
from neaptide.runtime.arena_plan import ArenaOptions
from neaptide.runtime.arguments import check_arena, check_on_mismatch, check_plan
from neaptide.runtime.capturing import capture_for_call
from neaptide.runtime.costed_step import Progress
from neaptide.runtime.evicting_variant import evicting_variant
from neaptide.runtime.for_all_shapes import (
    BY_SHAPE,
    check_for_all_shapes,
    for_all_shapes,
    varies,
    watches_sizes,
)
from neaptide.runtime.for_seen_shapes import for_seen_shapes
from neaptide.runtime.plan_matching import fits, matched, same_budget, warn_of_left_out
from neaptide.runtime.planned_graph import LeaveOut, PlannedVariant
from neaptide.runtime.planned_step import OnMismatch, PlannedStep, Replanner
from neaptide.runtime.prepared_step import PreparedStep, prepare
from neaptide.runtime.search_options import RUNS, SearchOptions
from neaptide.runtime.seen_sizes import SeenDims, SeenSizes
from neaptide.runtime.shapes_matching import dims_of_plan, matched_for_all_shapes
from neaptide.runtime.step_copies import Remake
from neaptide.settings import DEFAULT_TIME_LIMIT_S, DEFAULTS, check_setting, verified_calls
from neaptide.transform.rewrite import Rewrite

Step = Callable[..., Any]


def apply(
    plan: Plan | str | Path,
    step: Step,
    *,
    state: Any = None,
    on_mismatch: OnMismatch = "replan",
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    arena: bool | ArenaOptions = False,
    allow_nondeterministic: bool = False,
    slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    verify: bool | str | None = DEFAULTS.verify,
    strict: bool = DEFAULTS.strict,
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
        slow: where storages wait that the plan moves: on the CPU a file, its folder and the rate that copies are held to.
        allow_nondeterministic: needed for a plan that was made with it: a file cannot allow itself other bits.
        verify: as for `compile_step`.
        strict: as for `compile_step`.

    Raises:
        UsageError: neither a plan nor a path, or an unknown `on_mismatch`.
        PlanError: there is no such file, or it is no plan; at the first call: it is not legal for this step, or its
            numbers are not this step's.
        PlanMismatch: at the first call: the step is another program; says what differs.
        InfeasibleBudget: at a later call of other shapes: no plan within the same bytes was found.
    """
    given = dict(locals())
    check_on_mismatch(on_mismatch)
    check_setting("strict", strict)
    checked = check_plan(plan)
    check_arena(checked, arena=bool(arena))
    make = _maker(checked, step, state, time_limit_s, arena, allow_nondeterministic, slow)
    made = PlannedStep(
        step, make, on_mismatch=on_mismatch, verify=verified_calls(verify), strict=strict, slow=slow
    )
    made.remake = _remake(partial(apply, checked), given)
    return made


def compile_step(
    step: Step,
    *,
    budget: Budget | str | int,
    state: Any = None,
    on_mismatch: OnMismatch = "replan",
    strategy: str = DEFAULTS.strategy,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    work_limit: int | None = None,
    seed: int = DEFAULTS.seed,
    atomic: bool = False,
    allow_nondeterministic: bool = False,
    progress: Progress | None = None,
    arena: bool | ArenaOptions = False,
    eviction: str | None = None,
    rewrites: Sequence[str | Rewrite] = (),
    numerics: str = DEFAULTS.numerics,
    workers: int | None = DEFAULTS.workers,
    trials: int | None = DEFAULTS.trials,
    in_place: bool = DEFAULTS.in_place,
    slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    dynamic: Dynamic | Literal["auto"] | bool | None = "auto",
    checkpoints: str = DEFAULTS.checkpoints,
    verify: bool | str | None = DEFAULTS.verify,
    strict: bool = DEFAULTS.strict,
) -> PlannedStep:
    """A callable that plans a step when it is first called, and runs it under the plan from then on.

    Example: `fast = neaptide.compile_step(step, budget="60%")`, then `loss = fast(batch)` in the training loop.
    The arguments are those of `plan` and `apply`. The search ends once it has taken longer than it can save in 100 steps.
    The plan lacks what only a report tells: axes, and what `numerics="close"` would do better. Calls of other shapes are
    planned when they first come. They may use the bytes that the first plan was allowed, so a small last batch need not
    reach a share of its own; a share
    such as `"60%"` gives a larger batch that share of its own baseline.

    With `eviction="dtr"`, or another name of `planner.points.decide.POLICIES`, nothing is searched for: the step runs in
    its own order, and where the budget is reached a policy without a look ahead decides what is let go and made again
    later (Kirisame et al., ICLR 2021).

    With `trials=3`, so many plans are made for limits around the one asked for, sharing the time limit. At the first usual
    call they run in turns with the step itself, and what they change is put back from a copy of the
    model and its state in the host's memory. The least peak that measured within the limit of time is taken, or the fastest
    plan where none is within it; for a limit of bytes the fastest.

    With `dynamic={"batch": {0: (1, 64), 1: (16, 4096)}}` one program is made for a range of shapes: the key is an
    argument of the step, or a path such as `batch.input_ids`, and each dim has its range or a `torch.export.Dim`. The
    program decides at each call what is evicted for the shapes of that call, and stays within the limit for all of them.
    A share such as `"60%"` is of the largest shapes. Calls of other shapes are planned by themselves, for the same bytes.
    With `strategy="by_shape"` a few plans are searched for instead, of which a call runs the fastest within the limit at its shape.
    With `numerics="close"` there is a second program in which a region runs in parts, as many as a shape needs; a call runs
    the faster of both that stays within the limit. With `arena=True` each shape that is met gets a layout of its own, and the
    limit holds for the block and what is outside of it.

    With `checkpoints="undo"` functions under `torch.utils.checkpoint` run once, as plain code, where eager runs them twice:
    running statistics and random numbers are then those of the step without checkpoints.

    By default (`dynamic="auto"`) the dims that vary are found by watching: the first call is planned for its shape, and when
    a later one has other sizes, those that differ become dims, and one program serves all sizes of them from then on.
    A share of the budget is then of the peak at the shape of each call. Where a dim cannot vary, each shape is planned by itself,
    and a warning names the dim. `dynamic=True` is the same, and refuses what excludes it; with `"auto"` each shape is then
    planned by itself, as with `dynamic=False`.

    The first call of each program is verified: eager runs in front of it on the same objects, which are put back from a file, and
    the bits of all results and of all state are compared. That takes about as long as another step, and no byte beyond the
    budget: what autograd saves waits in the file. Where it does not fit, a line of the log says so. A difference is a
    `NumericsWarning` that names the first operation that differs, and the call is eager's; with `strict=True` it is a
    `NumericsError`. `verify="every 100"` does it at each hundredth planned call as well, `verify="never"` not at all;
    where it is not given, `NEAPTIDE_VERIFY` says. `counts` tells what it cost.

    Raises:
        UsageError: an unknown strategy, rule, `on_mismatch` or way to evict, or eviction together with a strategy, with
            `atomic`, with an arena, with rewrites, with trials or with a budget's latency; trials without a limit;
            ranges in `dynamic` with any of these but an arena, and with an arena also room on the host, plans by shape or
            `numerics="close"`; or `dynamic=True` with any of these, or without planning again. At the first call: `dynamic`
            does not fit its arguments.
        InfeasibleBudget: at a call: no plan within its bytes was found.
    """
    check_setting("checkpoints", checkpoints)
    given = dict(locals())
    check_on_mismatch(on_mismatch)
    check_setting("strict", strict)
    options = search_options(
        budget,
        DEFAULTS.strategy if isinstance(dynamic, Mapping) and strategy == BY_SHAPE else strategy,
        time_limit_s,
        work_limit,
        seed,
        atomic,
        None,
        rewrites,
        numerics,
        workers,
        trials,
        in_place,
    )
    options = replace(options, explains=False, limits=replace(options.limits, runs=RUNS))
    if eviction is not None:
        policy(eviction)  # a misspelt name is told before the capture, which takes seconds
    _refuse_exclusions(options, strategy, arena=bool(arena), evicts=eviction is not None)
    if isinstance(dynamic, Mapping):
        options = replace(options, strategy=strategy)
        check_for_all_shapes(options, arena=bool(arena), evicts=eviction is not None)
    watches = watches_sizes(dynamic, options, on_mismatch, arena=bool(arena), evicts=eviction is not None)
    seen = SeenSizes(step, of_shape=options.budget.is_share) if watches else None
    first_bytes = 0
    latest: CapturedStep | None = None
    leave_out = _warn_once()

    def make(args: tuple[Any, ...], kwargs: Mapping[str, Any], changing: frozenset[str]) -> PlannedVariant:
        if seen is not None:
            return seen.planned(partial(make_for, args, kwargs, changing), args, kwargs)
        return make_for(args, kwargs, changing, dynamic if isinstance(dynamic, Mapping) else None)

    def make_for(
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        changing: frozenset[str],
        ranges: SeenDims | Dynamic | None,
    ) -> PlannedVariant:
        nonlocal first_bytes, latest
        prepared = prepare(
            step,
            args,
            kwargs,
            state=state,
            progress=progress,
            changing=changing,
            bits_may_vary=allow_nondeterministic,
            slow=slow,
            checkpoints=checkpoints,
            dynamic=ranges.dynamic if isinstance(ranges, SeenDims) else ranges,
            like=latest,
            replans=on_mismatch == "replan",
        )
        latest = prepared.captured
        allowed = replace(options, least_bytes=first_bytes, leave_out=leave_out if first_bytes else None)
        if isinstance(ranges, SeenDims) and varies(prepared):
            return for_seen_shapes(prepared, allowed, ranges.shapes)
        if varies(prepared):
            variant = placed(prepared, for_all_shapes(prepared, allowed), arena)
            first_bytes = first_bytes or variant.graphs[0].limit_bytes
            return variant
        if eviction is not None:
            variant = evicting_variant(prepared, allowed, eviction)
            first_bytes = first_bytes or variant.graphs[0].limit_bytes
            return variant
        if allowed.trials is not None:
            choice = open_choice(prepared, allowed, arena)
            found = choice.plans[0]
            found = replace(found, variant=replace(found.variant, choice=choice))
        else:
            found = plan_within_budget(prepared, allowed)
            found = replace(found, variant=placed(prepared, found.variant, arena))
        first_bytes = first_bytes or found.plan.programs[0].budget_bytes
        return found.variant

    made = PlannedStep(
        step, make, on_mismatch=on_mismatch, verify=verified_calls(verify), strict=strict, slow=slow
    )
    made.remake = _remake(compile_step, given)
    return made


def _remake(make: Callable[..., PlannedStep], given: dict[str, Any]) -> Remake:
    """How a copy of a step is planned: with the options that were given, and a copy of the state that was named."""
    options = {name: content for name, content in given.items() if name not in {"plan", "step", "state"}}
    return lambda step, copied: make(step, state=copied(given["state"]), **options)


def _refuse_exclusions(options: SearchOptions, strategy: str, *, arena: bool, evicts: bool) -> None:
    asked = asked_for(
        strategy=strategy,
        numerics=options.numerics,
        budget=options.budget,
        atomic=options.atomic,
        rewrites=bool(options.rewrites),
        trials=options.trials is not None,
    )
    others = {"arena": arena, "eviction": evicts}
    refuse_exclusions({*asked, *(what for what, is_asked in others.items() if is_asked)})


def _warn_once() -> LeaveOut:
    """Warns of each rule the first time that a rewrite of it is left out."""
    told: set[str] = set()

    def warn(rule: str, why: str) -> None:
        if rule not in told:
            told.add(rule)
            warn_of_left_out(rule, why)

    return warn


def _maker(
    plan: Plan,
    step: Step,
    state: Any,
    time_limit_s: float | None,
    arena: bool | ArenaOptions,
    allow_nondeterministic: bool,
    slow: SlowMemory,
) -> Replanner:
    """What plans a step under a plan. Its first capture must fit the plan; later ones are planned for the same bytes."""
    has_begun = False
    allowed = plan.allow_nondeterministic and allow_nondeterministic
    leave_out = _warn_once()
    dynamic = dims_of_plan(plan, arena=bool(arena))

    def make(args: tuple[Any, ...], kwargs: Mapping[str, Any], changing: frozenset[str]) -> PlannedVariant:
        nonlocal has_begun
        captured = capture_for_call(
            *(step, args, kwargs, dynamic),
            state=state,
            name=plan.name,
            changing=changing,
            checkpoints=plan.checkpoints,
        )
        prepared = PreparedStep(captured, bits_may_vary=allowed, slow=slow)
        is_of_plan = fits(plan, captured) or not has_begun
        if is_of_plan and dynamic is None:
            found = matched(plan, captured, time_limit_s, bits_may_vary=allowed)
            first = placed(prepared, replace(found, slow=slow), arena)
            has_begun = True
            return first
        if is_of_plan and varies(prepared):
            found = placed(prepared, matched_for_all_shapes(plan, prepared), arena)
            has_begun = True
            return found
        options = same_budget(plan, time_limit_s, leave_out)
        if varies(prepared):
            return placed(prepared, for_all_shapes(prepared, options), arena)
        return placed(prepared, plan_within_budget(prepared, options).variant, arena)

    return make

"""A plan that is chosen by what it measured, on fresh objects."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from neaptide.api.search_options import search_options
from neaptide.errors import UsageError
from neaptide.interruption import beyond_search
from neaptide.movers.slow_memory import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.planner.budget import Budget
from neaptide.plans import Plan
from neaptide.report.profiling import over_budget, over_bytes
from neaptide.runtime import contestants
from neaptide.runtime.arguments import check_no_batch
from neaptide.runtime.contestants import Factory
from neaptide.runtime.costed_step import Progress
from neaptide.runtime.open_choice import OpenChoice
from neaptide.runtime.prepared_step import PreparedStep, prepare
from neaptide.runtime.search_options import SearchOptions
from neaptide.runtime.searched_front import plans_to_try
from neaptide.runtime.step_plan import StepPlan
from neaptide.runtime.trials import TrialLimit
from neaptide.settings import DEFAULT_TIME_LIMIT_S, DEFAULTS, check_setting
from neaptide.transform.rewrite import Rewrite


def plan_by_trials(
    factory: Factory,
    *batch_of_step: Any,
    budget: Budget | str | int,
    trials: int,
    device: str | None = None,
    strategy: str = DEFAULTS.strategy,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    work_limit: int | None = None,
    seed: int = DEFAULTS.seed,
    interrupt: threading.Event | None = None,
    progress: Progress | None = None,
    atomic: bool = False,
    allow_nondeterministic: bool = False,
    rewrites: Sequence[str | Rewrite] = (),
    numerics: str = DEFAULTS.numerics,
    workers: int | None = DEFAULTS.workers,
    in_place: bool = DEFAULTS.in_place,
    slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    name: str = "",
    own_processes: bool = False,
    checkpoints: str = DEFAULTS.checkpoints,
) -> Plan:
    """Plan a training step for several limits around the one asked for, run the plans, and take one by what they took.

    Each program runs on fresh objects from the factory, in turns with the step as it is. Within a limit of time the least
    peak that measured within it is taken; for a limit of bytes the fastest plan. The plan says what was tried.

    Args:
        factory: as for `compare`.
        *batch_of_step: nothing; a step and its batch are refused.
        budget: as for `plan`, with a limit of time or of bytes.
        trials: limits that plans are made for, 2 to 7; equal plans, and those that another is predicted to beat, are not
            run. With `numerics="close"` at most two plans more, which are divided in other ways than the best.
        device: None, for this machine: nothing runs on another one.
        strategy: this and what follows are as for `plan`; the searches share the limits.
        time_limit_s: of all searches for one program together.
        work_limit: likewise.
        seed: of the searches, of the factory and of the runs.
        interrupt: set it to end the searches; nothing is run then, and the plan for the limit itself is returned.
        progress: told what is going on.
        atomic: as for `plan`.
        allow_nondeterministic: as for `plan`.
        rewrites: as for `plan`.
        numerics: as for `plan`.
        workers: as for `plan`.
        in_place: as for `plan`.
        slow: as for `plan`.
        name: of the plan.
        own_processes: as for `compare`.
        checkpoints: as for `plan`; so are all the others.

    Raises:
        InfeasibleBudget: no plan keeps to the bytes, or none measured within the time; carries the best (`.plan`).
        CaptureError: the step cannot be captured; names the user's line.
        InvalidBudget: the budget is no budget.
        UsageError: a step instead of a factory, a budget without a limit, or another device.
    """
    check_no_batch("plan_by_trials", batch_of_step)
    if device is not None:
        raise trials_elsewhere(device)
    check_setting("checkpoints", checkpoints)
    options = search_options(
        budget,
        strategy,
        time_limit_s,
        work_limit,
        seed,
        atomic,
        interrupt,
        rewrites,
        numerics,
        workers,
        trials,
        in_place,
    )
    step, batch = contestants.build(factory, seed)
    prepared = prepare(
        step,
        (batch,),
        name=name,
        progress=progress,
        bits_may_vary=allow_nondeterministic,
        slow=slow,
        checkpoints=checkpoints,
    )
    found = tried_plan(factory, prepared, options, progress, own_processes=own_processes)
    error = over_budget(prepared, found)
    if error is not None:
        raise error
    return found.plan


def tried_plan(
    factory: Factory,
    prepared: PreparedStep,
    options: SearchOptions,
    progress: Progress | None = None,
    *,
    own_processes: bool = False,
) -> StepPlan:
    """The plan that measured best; the best for the limit itself where that is too high, or was interrupted.

    Args:
        factory: that `prepared` was made with.
        prepared: the step.
        options: with `trials`, and a limit in their budget.
        progress: told what is going on.
        own_processes: as for `compare`.
    """
    plans, planned_for = plans_to_try(prepared, options)
    is_interrupted = options.interrupt is not None and options.interrupt.is_set()
    if is_interrupted or over_bytes(prepared, plans[0]) is not None:
        return plans[0]
    if progress is not None:
        progress(f"running {len(plans)} plans in turns")
    seed = options.limits.seed
    choice = OpenChoice(plans, planned_for, TrialLimit.of(options.budget), prepared.captured_on, seed)
    with beyond_search():
        return choice.settle_apart(factory, seed, own_processes=own_processes)


def trials_elsewhere(device: str) -> UsageError:
    """The refusal of trials for a device that is not here."""
    return UsageError(
        f"plans for {device} cannot be tried here",
        why="trials run the plans, on this machine",
        next_step="leave the device out, or the trials",
    )

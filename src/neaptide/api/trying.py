"""A plan that is chosen by what it measured, on fresh objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from neaptide.api.asking import ask_of, prepared_for
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.interruption import beyond_search
from neaptide.options import TrialOptions
from neaptide.plans import Plan
from neaptide.policy.prepared_step import PreparedStep
from neaptide.policy.searched_front import plans_to_try
from neaptide.report.profiling import over_budget, over_bytes
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestants import Factory
from neaptide.runtime.comparing.open_choice import OpenChoice
from neaptide.runtime.comparing.trials import TrialLimit
from neaptide.runtime.steps.arguments import check_no_batch
from neaptide.runtime.steps.step_plan import StepPlan


def plan_by_trials(
    factory: Factory,
    *batch_of_step: Any,
    budget: Budget | str | int,
    trials: int,
    name: str = "",
    own_processes: bool = False,
    **options: Unpack[TrialOptions],
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
        name: of the plan.
        own_processes: as for `compare`.
        **options: see `neaptide.options.TrialOptions`; all searches for one program share the limits. After an interrupt nothing
            is run, and the plan for the limit itself is returned.

    Raises:
        InfeasibleBudget: no plan keeps to the bytes, or none measured within the time; carries the best (`.plan`).
        CaptureError: the step cannot be captured; names the user's line.
        InvalidBudget: the budget is no budget.
        UsageError: a step instead of a factory, a budget without a limit, or another device.
    """
    check_no_batch("plan_by_trials", batch_of_step)
    ask = ask_of("plan_by_trials", budget, options, TrialOptions, trials=trials)
    step, batch = contestants.build(factory, ask.limits.seed)
    progress = options.get("progress")
    prepared = prepared_for(ask, step, (batch,), name=name, progress=progress)
    found = tried_plan(factory, prepared, ask, progress, own_processes=own_processes)
    error = over_budget(prepared, found)
    if error is not None:
        raise error
    return found.plan


def tried_plan(
    factory: Factory,
    prepared: PreparedStep,
    ask: Ask,
    progress: Callable[[str], None] | None = None,
    *,
    own_processes: bool = False,
) -> StepPlan:
    """The plan that measured best; the best for the limit itself where that is too high, or was interrupted.

    Args:
        factory: that `prepared` was made with.
        prepared: the step.
        ask: by trials, with a limit in its budget.
        progress: told what is going on.
        own_processes: as for `compare`.
    """
    plans, planned_for = plans_to_try(prepared, ask)
    is_interrupted = ask.interrupt is not None and ask.interrupt.is_set()
    if is_interrupted or over_bytes(prepared, plans[0]) is not None:
        return plans[0]
    if progress is not None:
        progress(f"running {len(plans)} plans in turns")
    seed = ask.limits.seed
    choice = OpenChoice(plans, planned_for, TrialLimit.of(ask.budget), prepared.captured_on, seed)
    with beyond_search():
        return choice.settle_apart(factory, seed, own_processes=own_processes)

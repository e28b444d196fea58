"""A plan for a step: by predictions, or by what several plans measured; and a plan in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack

from neaptide.api.asking import ask_of, check_varies, is_interrupted, plan_within_budget, prepared_for
from neaptide.ask import Ask
from neaptide.budget import Budget
from neaptide.frontends.dims.dynamic_dims import find_dims
from neaptide.interruption import beyond_search
from neaptide.options import PlanOptions, TrialOptions
from neaptide.plans import Plan
from neaptide.policy.points.saved_plan import plan_for_all_shapes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.policy.searched_front import plans_to_try
from neaptide.report.plan_text import plan_text
from neaptide.report.profiling import over_budget, over_bytes
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestants import Factory
from neaptide.runtime.comparing.trials import OpenChoice, TrialLimit
from neaptide.runtime.steps.arguments import check_no_batch, check_plan
from neaptide.runtime.steps.planned_graph import StepPlan

Step = Callable[..., Any]


def plan(
    step: Step,
    *args: Any,
    budget: Budget | str | int,
    kwargs: Mapping[str, Any] | None = None,
    state: Any = None,
    name: str = "",
    **options: Unpack[PlanOptions],
) -> Plan:
    """Plan a training step so that its peak stays within a budget at the least time.

    The user's objects are not changed and nothing of model size is allocated.

    Args:
        step: the training step.
        *args: what it is called with: tensors whose shapes, dtypes and devices are as in training.
        budget: a `Budget`, or what its `peak` takes: `"20GiB"`, `"60%"`, `"-30%"`, a number of bytes. With
            `Budget(None)` nothing is recomputed: the lowest peak found by order alone, at no extra time; but where
            the step's own `torch.utils.checkpoint` is lower than that, it stays.
        kwargs: further arguments of the step, by name.
        state: modules, optimizers and tensors that cannot be found by looking through `step`.
        name: of the plan.
        **options: see `neaptide.options.PlanOptions`.

    Raises:
        InfeasibleBudget: no plan within the budget was found; carries the best (`.plan`) and what is live at it.
        CaptureError: the step cannot be captured; names the user's line.
        InvalidBudget: the budget is no budget.
        UsageError: no option, strategy, rule or device of that name, or a factory instead of a step; `dynamic` does not fit
            the arguments, or is given together with what it excludes.
        RewriteError: a rewrite that is asked for is not legal.
    """
    ask = ask_of("plan", budget, options, PlanOptions, saved=True)
    if ask.dims is not None:
        find_dims(step, args, kwargs or {}, ask.dims)  # the call must be one of these shapes
    prepared = prepared_for(ask, step, args, kwargs, state=state, name=name, progress=options.get("progress"))
    if ask.dims is None:
        return plan_within_budget(prepared, ask).plan
    check_varies(prepared)
    return plan_for_all_shapes(prepared, ask).plan


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
    prepared = prepared_for(ask, step, (batch,), name=name, progress=options.get("progress"))
    found = tried_plan(factory, prepared, ask, own_processes=own_processes)
    error = over_budget(prepared, found)
    if error is not None:
        raise error
    return found.plan


def tried_plan(
    factory: Factory, prepared: PreparedStep, ask: Ask, *, own_processes: bool = False
) -> StepPlan:
    """The plan that measured best; the best for the limit itself where that is too high, or was interrupted."""
    plans, planned_for = plans_to_try(prepared, ask)
    if is_interrupted(ask) or over_bytes(prepared, plans[0]) is not None:
        return plans[0]
    prepared.say(f"running {len(plans)} plans in turns")
    seed = ask.limits.seed
    choice = OpenChoice(plans, planned_for, TrialLimit.of(ask.budget), prepared.problem().device, seed)
    with beyond_search():
        return choice.settle_apart(factory, seed, own_processes=own_processes)


def explain(plan: Plan | str | Path) -> str:
    """What a plan does and why, as text; `plan.explain()` is the same.

    Args:
        plan: a plan, or the path of its file.

    Raises:
        PlanError: there is no such file, or it is no plan.
        UsageError: neither a plan nor a path was given.
    """
    return plan_text(check_plan(plan), path=None if isinstance(plan, Plan) else str(plan))

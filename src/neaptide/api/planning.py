"""A plan for a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from neaptide.api.asking import ask_of, check_varies, plan_within_budget, prepared_for
from neaptide.budget import Budget
from neaptide.frontends.dims.dynamic_dims import find_dims
from neaptide.options import PlanOptions
from neaptide.plans import Plan
from neaptide.policy.points.saved_plan import plan_for_all_shapes

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
        InfeasibleBudget: no plan within the budget was found; carries the best (`.plan`) and what is alive at it.
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

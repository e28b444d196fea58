"""A plan for a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from neaptide.api.search_options import plan_within_budget, search_options
from neaptide.errors import UsageError
from neaptide.frontends.dims.dynamic_dims import Dynamic, find_dims
from neaptide.movers.slow_memory import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.planner.budget import Budget
from neaptide.plans import Plan
from neaptide.runtime.costed_step import Progress
from neaptide.runtime.for_all_shapes import BY_SHAPE, check_for_all_shapes, varies
from neaptide.runtime.prepared_step import prepare
from neaptide.runtime.shapes_plan import plan_for_all_shapes
from neaptide.settings import DEFAULT_TIME_LIMIT_S, DEFAULTS, check_setting
from neaptide.transform.rewrite import Rewrite

Step = Callable[..., Any]


def plan(
    step: Step,
    *args: Any,
    budget: Budget | str | int,
    kwargs: Mapping[str, Any] | None = None,
    state: Any = None,
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
    name: str = "",
    slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    dynamic: Dynamic | None = None,
    checkpoints: str = DEFAULTS.checkpoints,
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
        rewrites: what is done to the graph before it is planned, one after the other: names of rules
            (`neaptide.transform.rules.RULES`), each applied wherever it finds that it can be, and `Rewrite`s of the
            usual step.
        numerics: `bitwise`: every number has eager's bits. `close`: sums may be taken in another order, so that regions
            of the graph may run in parts; what comes out agrees within the tolerance of its dtype.
        workers: with `numerics="close"`, processes that plan variants of the graph side by side; 1 plans them here. None:
            as many as there are cores, where that saves time. Under a limit of work the plan is the same.
        in_place: put results on top of operands that nobody needs any more, where that lowers the peak or leaves less to
            recompute. Every bit is kept. Not done to an atomic step, nor by a strategy that is asked for by name.
        name: of the plan.
        slow: as for `apply`: how long copies take on this machine.
        dynamic: dims that may vary, as for `compile_step`: one plan for all shapes in their ranges. The arguments are one
            of these shapes. With `strategy="by_shape"` it has a few plans, of which a call runs one.
        checkpoints: `keep`: functions under `torch.utils.checkpoint` leave the state that eager's two runs leave. `undo`:
            they run once, as plain code; running statistics and random numbers are then those without checkpoints.

    Raises:
        InfeasibleBudget: no plan within the budget was found; carries the best (`.plan`) and what is alive at it.
        CaptureError: the step cannot be captured; names the user's line.
        InvalidBudget: the budget is no budget.
        UsageError: no strategy, rule or device of that name, or a factory instead of a step; `dynamic` does not fit the
            arguments, or is given together with what it excludes.
        RewriteError: a rewrite that is asked for is not legal.
    """
    check_setting("checkpoints", checkpoints)
    options = search_options(
        budget,
        DEFAULTS.strategy if dynamic and strategy == BY_SHAPE else strategy,
        time_limit_s,
        work_limit,
        seed,
        atomic,
        interrupt,
        rewrites,
        numerics,
        workers,
        in_place=in_place,
    )
    if dynamic:
        options = replace(options, strategy=strategy)
        check_for_all_shapes(options, arena=False, evicts=False, is_saved=True)
        find_dims(step, args, kwargs or {}, dynamic)  # the call must be one of these shapes
    prepared = prepare(
        step,
        args,
        kwargs,
        state=state,
        device=device,
        name=name,
        progress=progress,
        bits_may_vary=allow_nondeterministic,
        slow=slow,
        dynamic=dynamic,
        checkpoints=checkpoints,
    )
    if dynamic:
        if not varies(prepared):
            raise UsageError(
                "the step is a program for this shape alone",
                why="; ".join(prepared.captured.steady.sizes.notes) or "no dim of its program varies",
                next_step="leave dynamic out, or capture it at another shape of the ranges",
            )
        return plan_for_all_shapes(prepared, options, dynamic).plan
    return plan_within_budget(prepared, options).plan

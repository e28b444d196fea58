"""Eager, baseline and plans side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from neaptide.api.search_options import search_options
from neaptide.api.trying import trials_elsewhere, tried_plan
from neaptide.exclusions import refuse_exclusions
from neaptide.interruption import beyond_search
from neaptide.movers.slow_memory import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.planner.budget import Budget
from neaptide.planner.graph_search import check_strategy
from neaptide.planner.variants import check_host, check_variants, inner_strategy
from neaptide.report.comparison import compare_programs
from neaptide.report.model import Comparison
from neaptide.report.profiling import over_budget
from neaptide.runtime import contestants
from neaptide.runtime.arena_plan import ArenaOptions, arena_options
from neaptide.runtime.arguments import check_no_batch
from neaptide.runtime.contestants import Factory
from neaptide.runtime.costed_step import Progress
from neaptide.runtime.prepared_step import prepare
from neaptide.runtime.step_plan import StepPlan
from neaptide.settings import DEFAULT_TIME_LIMIT_S, DEFAULTS, check_setting
from neaptide.transform.rewrite import Rewrite


def compare(
    factory: Factory,
    *batch_of_step: Any,
    budget: Budget | str | int | None = None,
    also: Sequence[str] = (),
    repeats: int = DEFAULTS.repeats,
    device: str | None = None,
    eager: bool = True,
    verify: bool = True,
    strategy: str = DEFAULTS.strategy,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    work_limit: int | None = None,
    seed: int = DEFAULTS.seed,
    interrupt: threading.Event | None = None,
    progress: Progress | None = None,
    allow_nondeterministic: bool = False,
    rewrites: Sequence[str | Rewrite] = (),
    numerics: str = DEFAULTS.numerics,
    workers: int | None = DEFAULTS.workers,
    in_place: bool = DEFAULTS.in_place,
    name: str = "",
    arena: bool | ArenaOptions = False,
    trials: int | None = DEFAULTS.trials,
    slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    own_processes: bool = False,
    checkpoints: str = DEFAULTS.checkpoints,
) -> Comparison:
    """Run a step as it is, as captured, and as planned, and put predictions beside measurements.

    Each program runs on fresh objects from the factory. Numbers are compared in a verify run of three steps. Where the
    budget is not reached, the row `plan` is the best plan found, and `budget_missed` of the comparison says so.

    Args:
        factory: no arguments; returns `(step, batch)`, the same for the same random seed.
        *batch_of_step: nothing; a step and its batch are refused.
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
        rewrites: as for `plan`, in all rows but `baseline`.
        numerics: as for `plan`, in all rows but `baseline`.
        workers: as for `plan`.
        in_place: as for `plan`, in the row `plan`.
        slow: as for `apply`.
        name: for the report.
        arena: add a row `arena`: the plan, or the baseline where there is none, as `apply(arena=True)` runs it.
        trials: run so many plans around the limit, and take one by what they measured for the row `plan`. The times in
            the table are measured anew.
        own_processes: run each program that is timed in a process of its own, as a user's is: what another one leaves in heap and
            caches changes times by up to a fifth. The factory must be one that another process can make: a function of
            a module, not of a script or of another function.
        checkpoints: as for `plan`.

    Raises:
        UsageError: no strategy or device of that name, a step instead of a factory, an arena or trials for another device,
            or trials without a limit.
    """
    check_no_batch("compare", batch_of_step)
    if trials is not None and device is not None:
        raise trials_elsewhere(device)
    asked = Budget(None) if budget is None else budget
    check_setting("checkpoints", checkpoints)
    search = search_options(
        asked,
        strategy,
        time_limit_s,
        work_limit,
        seed,
        atomic=False,
        interrupt=interrupt,
        rewrites=rewrites,
        numerics=numerics,
        workers=workers,
        trials=trials,
        in_place=in_place,
    )
    if arena:
        refuse_exclusions(
            {"arena", *(["host"] if search.budget.host else []), *(["device"] if device is not None else [])}
        )
    for other in also:
        check_strategy(inner_strategy(other), atomic=False)
        check_variants(other, numerics, atomic=False)
        check_host(other, search.budget)
    step, batch = contestants.build(factory, seed)
    prepared = prepare(
        step,
        (batch,),
        device=device,
        name=name,
        progress=progress,
        bits_may_vary=allow_nondeterministic,
        slow=slow,
        checkpoints=checkpoints,
    )
    plans: dict[str, StepPlan] = {}
    began = time.perf_counter()
    if budget is not None:
        plans["plan"] = (
            prepared.plan(search)
            if trials is None
            else tried_plan(factory, prepared, search, own_processes=own_processes)
        )
    for other in also:
        plans[other] = prepared.plan(replace(search, strategy=other))
    plan_seconds = time.perf_counter() - began
    is_interrupted = interrupt is not None and interrupt.is_set()
    runs = device is None and not is_interrupted
    with beyond_search() if runs else nullcontext():
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
            own_processes=own_processes,
        )

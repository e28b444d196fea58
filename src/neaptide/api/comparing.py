"""Eager, baseline and plans side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Unpack

from neaptide.api.asking import ask_of, check_planner, prepared_for
from neaptide.api.trying import tried_plan
from neaptide.ask import ByTrials
from neaptide.budget import Budget
from neaptide.interruption import beyond_search
from neaptide.options import ComparisonOptions
from neaptide.report.comparison import compare_programs
from neaptide.report.model import Comparison
from neaptide.report.profiling import over_budget
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestants import Factory, Measuring
from neaptide.runtime.steps.arguments import check_no_batch
from neaptide.runtime.steps.step_plan import StepPlan
from neaptide.settings import DEFAULTS


def compare(
    factory: Factory,
    *batch_of_step: Any,
    budget: Budget | str | int | None = None,
    also: Sequence[str] = (),
    repeats: int = DEFAULTS.repeats,
    eager: bool = True,
    verify: bool = True,
    name: str = "",
    own_processes: bool = False,
    **options: Unpack[ComparisonOptions],
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
        name: for the report.
        own_processes: run each program that is timed in a process of its own, as a user's is: what another one leaves in heap and
            caches changes times by up to a fifth. The factory must be one that another process can make: a function of
            a module, not of a script or of another function.
        **options: see `neaptide.options.ComparisonOptions`. After an interrupt nothing is run.

    Raises:
        UsageError: no strategy or device of that name, a step instead of a factory, an arena or trials for another device,
            or trials without a limit.
    """
    check_no_batch("compare", batch_of_step)
    ask = ask_of("compare", budget, options, ComparisonOptions)
    for other in also:
        check_planner(other, ask.numerics, ask.budget)
    step, batch = contestants.build(factory, ask.limits.seed)
    progress = options.get("progress")
    prepared = prepared_for(ask, step, (batch,), name=name, progress=progress)
    plans: dict[str, StepPlan] = {}
    began = time.perf_counter()
    if budget is not None:
        plans["plan"] = (
            tried_plan(factory, prepared, ask, own_processes=own_processes)
            if isinstance(ask.mode, ByTrials)
            else prepared.plan(ask)
        )
    for other in also:
        plans[other] = prepared.plan(replace(ask, strategy=other))
    plan_seconds = time.perf_counter() - began
    is_interrupted = ask.interrupt is not None and ask.interrupt.is_set()
    runs = ask.device is None and not is_interrupted
    measuring = Measuring(
        repeats=repeats if runs else 0,
        eager=eager,
        verify=verify and eager,
        seed=ask.limits.seed,
        own_processes=own_processes,
        runs=runs,
        progress=progress,
    )
    with beyond_search() if runs else nullcontext():
        compared = compare_programs(
            factory,
            prepared,
            plans,
            measuring,
            plan_seconds=plan_seconds,
            arena=None if is_interrupted else ask.arena,
            missed=over_budget(prepared, plans["plan"]) if "plan" in plans else None,
        )
    if not is_interrupted:
        return compared
    return replace(compared, notes=("interrupted, so nothing was run", *compared.notes))

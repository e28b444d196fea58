"""Eager, baseline and plans side by side; or one plan for a range of shapes beside eager and padding, at some of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Unpack

from neaptide.api.asking import ask_of, check_planner, check_varies, is_interrupted, prepared_for
from neaptide.api.planning import tried_plan
from neaptide.ask import ByTrials, Dims, OneShape
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.frontends.dims.dynamic_dims import DynamicDim, find_dims
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.interruption import beyond_search
from neaptide.options import ComparisonOptions, ShapesOptions
from neaptide.policy.points.for_all_shapes import for_all_shapes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.report.comparison import compare_at_shapes, compare_programs
from neaptide.report.model import Comparison, ShapesComparison
from neaptide.report.profiling import over_budget
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestant_process import CapturedFor
from neaptide.runtime.comparing.contestants import Factory, FactoryOfShape, Measuring
from neaptide.runtime.steps.arguments import check_no_batch
from neaptide.runtime.steps.planned_graph import StepPlan
from neaptide.settings import DEFAULTS
from neaptide.symbolic.size_expr import SizeExpr


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
    runs = ask.place.device is None and not is_interrupted(ask)
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
            arena=None if is_interrupted(ask) else ask.arena,
            missed=over_budget(prepared, plans["plan"]) if "plan" in plans else None,
        )
    if not is_interrupted(ask):
        return compared
    return replace(compared, notes=("interrupted, so nothing was run", *compared.notes))


def compare_shapes(
    factory: Factory,
    *batch_of_step: Any,
    budget: Budget | str | int,
    dynamic: Dims,
    at: Sequence[Sequence[int]] = (),
    repeats: int = DEFAULTS.repeats,
    eager: bool = True,
    verify: bool = True,
    own_processes: bool = False,
    **options: Unpack[ShapesOptions],
) -> ShapesComparison:
    """Make one plan for a range of shapes, and measure it at some of them beside eager and padding.

    A batch of another shape is made of the factory's: entries are left out at the end, or come again from the beginning.
    `padded` is a plan for the largest shape alone, within the same bytes, and always runs a batch of that shape.

    Args:
        factory: as for `compare`.
        *batch_of_step: nothing; a step and its batch are refused.
        budget: a limit of bytes, as for `compile_step` with `dynamic`.
        dynamic: dims that vary, as for `compile_step`.
        at: shapes, each a size for every dim in the order of `dynamic`; none means the smallest, a middle one and the largest.
        repeats: timed steps of each program, taking turns; 0 measures no time.
        eager: False leaves the eager runs out.
        verify: compare numbers with eager at each shape (needs `eager`).
        own_processes: as for `compare`.
        **options: see `neaptide.options.ShapesOptions`.

    Raises:
        UsageError: a shape that the program does not hold for, `dynamic` that does not fit the batch, or what it excludes.
        InfeasibleBudget: no plan for all shapes within the budget was found.
    """
    check_no_batch("compare_shapes", batch_of_step)
    ask = ask_of("compare_shapes", budget, options, ShapesOptions, task="compare", dynamic=dynamic)
    seed, progress = ask.limits.seed, options.get("progress")
    how: dict[str, Any] = {"name": options.get("name", ""), "progress": progress}
    step, batch = contestants.build(factory, seed)
    dims = find_dims(step, (batch,), {}, dynamic)
    for sizes in at:
        _check_length(sizes, dims)
    prepared = prepared_for(ask, step, (batch,), **how)
    check_varies(prepared)
    began = time.perf_counter()
    variant = for_all_shapes(prepared, ask)
    plan_seconds = time.perf_counter() - began
    small, middle, large = _usual_shapes(prepared, dims)
    wanted = [dict(zip((d.name for d in dims), s, strict=True)) for s in at] or [small, middle, large]
    shapes = [FactoryOfShape.of(factory, dims, shape) for shape in wanted]
    for made in shapes:
        _check_holds(prepared, made, seed, dims)
    largest = FactoryOfShape.of(factory, dims, large)
    within = Budget(variant.graphs[0].limit_bytes, host=ask.budget.host)
    for_largest = replace(ask, budget=within, mode=OneShape())
    step, batch = contestants.build(largest, seed)
    alone = prepared_for(for_largest, step, (batch,), **how)
    padded = alone.plan(for_largest)
    missed = over_budget(alone, padded)
    measuring = Measuring(repeats, eager, verify and eager, seed, own_processes, progress=progress)
    captured_for = CapturedFor(factory, dynamic)
    with beyond_search():
        distinct = list(dict.fromkeys(shapes))
        compared = compare_at_shapes(prepared, variant, padded, largest, distinct, captured_for, measuring)
    notes = compared.notes
    if missed is not None:
        notes = (*notes, f"padded is over the budget: {missed.what}")
    return replace(compared, plan_seconds=plan_seconds, notes=notes)


def _usual_shapes(prepared: PreparedStep, dims: Sequence[DynamicDim]) -> list[dict[str, int]]:
    """The smallest, a middle and the largest shape, by the dims that were asked for."""
    sizes = prepared.captured.steady.sizes
    found = []
    for part in range(3):
        shape = {d.name: d.low + ((d.high or d.low) - d.low) * part // 2 for d in sizes.dims}
        found.append({d.name: sizes.asked.get(d.name, SizeExpr.dim(d.name)).evaluate(shape) for d in dims})
    return found


def _check_length(sizes: Sequence[int], dims: Sequence[DynamicDim]) -> None:
    if len(sizes) != len(dims):
        raise UsageError(
            f"the shape {'x'.join(map(str, sizes))} has {len(sizes)} sizes, and {len(dims)} dims vary",
            next_step=f"give a size for each of: {', '.join(dim.name for dim in dims)}",
        )


def _check_holds(
    prepared: PreparedStep, factory: FactoryOfShape, seed: int, dims: Sequence[DynamicDim]
) -> None:
    _, batch = contestants.build(factory, seed)
    guard, steady = prepared.captured.sizes, prepared.captured.steady
    if guard is not None and not guard.holds((batch,), {}):
        leaves = leaves_of(batch)
        told = ", ".join(f"{d.name} = {leaves[d.places[0][0]].shape[d.places[0][1]]}" for d in dims)
        raise UsageError(
            f"the program does not hold for {told}",
            why="; ".join((*map(str, steady.graph.dims), *steady.sizes.notes)),
            next_step="name shapes that it holds for with at= or --at, such as 8x512",
        )

"""A plan for all shapes beside eager and padding, at some shapes of its range."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from neaptide.api.search_options import search_options
from neaptide.errors import UsageError
from neaptide.frontends.dims.dynamic_dims import Dynamic, DynamicDim, find_dims
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.interruption import beyond_search
from neaptide.movers.slow_memory import DEFAULT_SLOW_MEMORY, SlowMemory
from neaptide.planner.budget import Budget
from neaptide.report.model import ShapesComparison
from neaptide.report.profiling import over_budget
from neaptide.report.shapes_comparison import compare_at_shapes
from neaptide.runtime import contestants
from neaptide.runtime.arguments import check_no_batch
from neaptide.runtime.contestant_messages import CapturedFor
from neaptide.runtime.contestants import Factory
from neaptide.runtime.costed_step import Progress
from neaptide.runtime.for_all_shapes import check_for_all_shapes, for_all_shapes, varies
from neaptide.runtime.prepared_step import PreparedStep, prepare
from neaptide.runtime.shape_batches import FactoryOfShape
from neaptide.settings import DEFAULT_TIME_LIMIT_S, DEFAULTS, check_setting
from neaptide.symbolic.size_expr import SizeExpr


def compare_shapes(
    factory: Factory,
    *batch_of_step: Any,
    budget: Budget | str | int,
    dynamic: Dynamic,
    at: Sequence[Sequence[int]] = (),
    repeats: int = DEFAULTS.repeats,
    eager: bool = True,
    verify: bool = True,
    strategy: str = DEFAULTS.strategy,
    time_limit_s: float | None = DEFAULT_TIME_LIMIT_S,
    work_limit: int | None = None,
    seed: int = DEFAULTS.seed,
    interrupt: threading.Event | None = None,
    progress: Progress | None = None,
    allow_nondeterministic: bool = False,
    name: str = "",
    slow: SlowMemory = DEFAULT_SLOW_MEMORY,
    own_processes: bool = False,
    checkpoints: str = DEFAULTS.checkpoints,
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
        strategy: `default`, or `by_shape`, for the plan for all shapes.
        time_limit_s: of each search.
        work_limit: of each search.
        seed: of the searches, of the factory and of the runs.
        interrupt: set it to end the searches.
        progress: told what is going on.
        allow_nondeterministic: as for `plan`.
        name: for the report.
        slow: as for `apply`.
        own_processes: as for `compare`.
        checkpoints: as for `plan`.

    Raises:
        UsageError: a shape that the program does not hold for, `dynamic` that does not fit the batch, or what it excludes.
        InfeasibleBudget: no plan for all shapes within the budget was found.
    """
    check_setting("checkpoints", checkpoints)
    check_no_batch("compare_shapes", batch_of_step)
    options = search_options(
        budget, DEFAULTS.strategy, time_limit_s, work_limit, seed, atomic=False, interrupt=interrupt
    )
    asked = replace(options, strategy=strategy)
    check_for_all_shapes(asked, arena=False, evicts=False)
    step, batch = contestants.build(factory, seed)
    dims = find_dims(step, (batch,), {}, dynamic)
    for sizes in at:
        _check_length(sizes, dims)
    prepared = prepare(
        step,
        (batch,),
        name=name,
        progress=progress,
        bits_may_vary=allow_nondeterministic,
        slow=slow,
        dynamic=dynamic,
        checkpoints=checkpoints,
    )
    if not varies(prepared):
        raise UsageError(
            "the step is a program for this shape alone",
            why="; ".join(prepared.captured.steady.sizes.notes) or "no dim of its program varies",
            next_step="leave dynamic out, or capture it at another shape of the ranges",
        )
    began = time.perf_counter()
    variant = for_all_shapes(prepared, asked)
    plan_seconds = time.perf_counter() - began
    small, middle, large = _usual_shapes(prepared, dims)
    wanted = [dict(zip((d.name for d in dims), s, strict=True)) for s in at] or [small, middle, large]
    shapes = [FactoryOfShape.of(factory, dims, shape) for shape in wanted]
    for made in shapes:
        _check_holds(prepared, made, seed, dims)
    largest = FactoryOfShape.of(factory, dims, large)
    alone = prepare(
        *_step_and_args(largest, seed),
        name=name,
        progress=progress,
        bits_may_vary=allow_nondeterministic,
        slow=slow,
        checkpoints=checkpoints,
    )
    within = Budget(variant.graphs[0].limit_bytes, host=options.budget.host)
    padded = alone.plan(replace(options, budget=within))
    missed = over_budget(alone, padded)
    with beyond_search():
        return compare_at_shapes(
            prepared,
            variant,
            padded,
            largest,
            list(dict.fromkeys(shapes)),
            CapturedFor(factory, dynamic),
            repeats=repeats,
            eager=eager,
            verify=verify and eager,
            plan_seconds=plan_seconds,
            seed=seed,
            notes=() if missed is None else (f"padded is over the budget: {missed.what}",),
            own_processes=own_processes,
        )


def _usual_shapes(prepared: PreparedStep, dims: Sequence[DynamicDim]) -> list[dict[str, int]]:
    """The smallest, a middle and the largest shape, by the dims that were asked for."""
    sizes = prepared.captured.steady.sizes
    found = []
    for part in range(3):
        shape = {d.name: d.low + ((d.high or d.low) - d.low) * part // 2 for d in sizes.dims}
        found.append({d.name: sizes.asked.get(d.name, SizeExpr.dim(d.name)).evaluate(shape) for d in dims})
    return found


def _step_and_args(factory: FactoryOfShape, seed: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    step, batch = contestants.build(factory, seed)
    return step, (batch,)


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
    guard = prepared.captured.sizes
    if guard is not None and not guard.holds((batch,), {}):
        leaves = leaves_of(batch)
        told = ", ".join(f"{d.name} = {leaves[d.places[0][0]].shape[d.places[0][1]]}" for d in dims)
        raise UsageError(
            f"the program does not hold for {told}",
            why="; ".join(
                (*map(str, prepared.captured.steady.graph.dims), *prepared.captured.steady.sizes.notes)
            ),
            next_step="name shapes that it holds for with at= or --at, such as 8x512",
        )

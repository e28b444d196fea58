"""A plan for all shapes beside eager and padding, at some shapes of its range."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from neaptide.api.asking import ask_of, check_varies, prepared_for
from neaptide.ask import Dims, OneShape
from neaptide.budget import Budget
from neaptide.errors import UsageError
from neaptide.frontends.dims.dynamic_dims import DynamicDim, find_dims
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.interruption import beyond_search
from neaptide.options import ShapesOptions
from neaptide.policy.points.for_all_shapes import for_all_shapes
from neaptide.policy.prepared_step import PreparedStep
from neaptide.report.model import ShapesComparison
from neaptide.report.profiling import over_budget
from neaptide.report.shapes_comparison import compare_at_shapes
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestant_messages import CapturedFor
from neaptide.runtime.comparing.contestants import Factory, Measuring
from neaptide.runtime.comparing.shape_batches import FactoryOfShape
from neaptide.runtime.steps.arguments import check_no_batch
from neaptide.settings import DEFAULTS
from neaptide.symbolic.size_expr import SizeExpr


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
    seed = ask.limits.seed
    how: dict[str, Any] = {"name": options.get("name", ""), "progress": options.get("progress")}
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
    alone = prepared_for(for_largest, *_step_and_args(largest, seed), **how)
    padded = alone.plan(for_largest)
    missed = over_budget(alone, padded)
    measuring = Measuring(
        repeats, eager, verify and eager, seed, own_processes, progress=options.get("progress")
    )
    with beyond_search():
        compared = compare_at_shapes(
            prepared,
            variant,
            padded,
            largest,
            list(dict.fromkeys(shapes)),
            CapturedFor(factory, dynamic),
            measuring,
            plan_seconds=plan_seconds,
        )
    if missed is None:
        return compared
    return replace(compared, notes=(*compared.notes, f"padded is over the budget: {missed.what}"))


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

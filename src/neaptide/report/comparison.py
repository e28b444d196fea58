"""Makes comparisons: runs each program on fresh objects and puts what was predicted beside what was measured."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Final

from neaptide.cost.timing.call_clock import CallClock, ClockNormalisation
from neaptide.errors import InfeasibleBudget
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.frontends.programs.host_bytes import bytes_after
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import STEADY
from neaptide.policy.plan_facts import versions
from neaptide.policy.points.arenas import in_arenas
from neaptide.policy.prepared_step import PreparedStep
from neaptide.report.cells import predicted_only
from neaptide.report.model import ComparedShape, Comparison, ComparisonRow, ShapesComparison
from neaptide.report.run_text import arena_lines
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestant_process import CapturedFor, rivals
from neaptide.runtime.comparing.contestants import Factory, FactoryOfShape, Measured, Measuring, Rival
from neaptide.runtime.comparing.trials import Clock, clock_of
from neaptide.runtime.comparing.verification import Verification, verify_eager, verify_planned
from neaptide.runtime.steps.arena_report import predicted_at, predicted_seconds_at
from neaptide.runtime.steps.planned_graph import PlannedVariant, StepPlan
from neaptide.transform.rules import described_rewrites
from neaptide.units import format_bytes, format_seconds

ARENA: Final = "arena"
PADDED: Final = "padded"
_FAR_OFF: Final = 0.1
"""Of a measured time: by how much a prediction may be off before that is told."""
_WRONG: Final = 0.25
"""Likewise, before the dearest operations are timed again."""
_GUARDS_S: Final = 2e-3
"""What guards and inputs of a step may take, which no prediction has."""


@dataclass(frozen=True, slots=True)
class _Verified:
    """A program beside eager after three steps, and the last loss, where that is one number."""

    outcome: Verification | None  # None of eager itself
    loss: float | None


def compare_programs(
    factory: Factory,
    prepared: PreparedStep,
    plans: Mapping[str, StepPlan],
    how: Measuring,
    *,
    plan_seconds: float = 0.0,
    arena: ArenaOptions | None = None,
    missed: InfeasibleBudget | None = None,
) -> Comparison:
    """Run and measure eager, baseline and the plans, on fresh objects each.

    The first plan, if any, is the one that the budget was for, and `missed` tells how it is beyond that. `arena` adds a
    row: the first plan, else the baseline, inside an arena.
    """
    variants: dict[str, PlannedVariant] = {"baseline": prepared.baseline_variant()}
    variants |= {name: found.variant for name, found in plans.items()}
    if arena is not None:
        inside = next(iter(plans), "baseline")
        variants[ARENA] = in_arenas(prepared, variants[inside], arena)
        plans = {**plans, ARENA: plans[inside]} if plans else plans
    verified: dict[str, _Verified] = {}
    if how.runs and how.verify:
        prepared.say("verifying: three steps of each program against eager")
        verified = _verified(factory, variants, how.seed)
    measured: dict[str, Measured] = {}
    normalisation: ClockNormalisation | None = None
    if how.runs:
        prepared.say("measuring memory and time")
        with rivals(factory, how.seed, own_processes=how.own_processes) as make:
            runs = [make("eager", None)] if how.eager else []
            runs += [make(name, variant) for name, variant in variants.items()]
            measured, normalisation = _measured(runs, how.repeats, prepared.clock)
    factor = 1.0 if normalisation is None else normalisation.factor
    rows = [_row(name, measured, verified, how.repeats) for name in ("eager",) if name in measured]
    rows += [
        _predicted(_row(name, measured, verified, how.repeats), prepared, plans.get(name), variant, factor)
        for name, variant in variants.items()
    ]
    first = next(iter(plans.values()), None)
    asked = None if first is None else first.plan.budget
    program = None if first is None else first.plan.programs[0]
    bounds = prepared.problem() if program is None else program.predictions
    marks = [m.memory.high_water_mark_bytes for m in measured.values() if m.memory.high_water_mark_bytes]
    is_limited = asked is not None and (asked.peak is not None or asked.latency is not None)
    return Comparison(
        name=prepared.captured.steady.graph.name,
        device=prepared.device.name,
        rows=tuple(rows),
        budget_bytes=program.budget_bytes if program is not None and is_limited else None,
        lower_bound_bytes=bounds.lower_bound_bytes,
        order_lower_bound_bytes=bounds.order_lower_bound_bytes,
        is_for_bytes=asked is not None and asked.peak is None and asked.latency is not None,
        bounds_are_of_rewritten=program is not None and bool(program.rewrites),
        plan_seconds=plan_seconds,
        capture_seconds=prepared.captured.seconds,
        high_water_mark_bytes=max(marks, default=None),
        notes=tuple(_notes(prepared, variants, verified, rows, normalisation)),
        versions=versions(),
        seed=how.seed,
        budget_missed="" if missed is None else "; ".join(filter(None, (missed.what, missed.where))),
        reference_kept_s=None if normalisation is None else normalisation.kept_s,
        reference_seen_s=None if normalisation is None else normalisation.seen_s,
    )


def compare_at_shapes(
    prepared: PreparedStep,
    variant: PlannedVariant,
    padded: StepPlan,
    largest: FactoryOfShape,
    shapes: Sequence[FactoryOfShape],
    captured_for: CapturedFor,
    how: Measuring,
) -> ShapesComparison:
    """Run and measure, at each of some shapes, eager, a plan for all shapes, and a plan for the largest shape alone.

    `captured_for`: how the step was captured.
    """
    found = []
    for factory in shapes:
        shape = _shape(prepared, factory, how.seed)
        prepared.say("measuring at " + ", ".join(f"{d} = {s}" for d, s in shape.items()))
        with (
            rivals(factory, how.seed, own_processes=how.own_processes, captured_for=captured_for) as make,
            rivals(largest, how.seed, own_processes=how.own_processes) as make_padded,
        ):
            runs = [make("eager", None)] if how.eager else []
            runs += [make("plan", variant), make_padded(PADDED, padded.variant)]
            measured = contestants.measure(runs, how.repeats)
        verified = _verified(factory, {"plan": variant}, how.seed) if how.verify else {}
        rows = {name: replace(_row(name, measured, verified, how.repeats), loss=None) for name in measured}
        alone, with_workspace = predicted_at(variant.graphs[0], shape)
        rows["plan"] = replace(
            rows["plan"],
            predicted_peak_bytes=alone,
            predicted_peak_with_workspace_bytes=with_workspace,
            predicted_step_seconds=predicted_seconds_at(variant.graphs[0], shape, prepared.device),
        )
        predictions = padded.plan.program(STEADY).predictions
        rows[PADDED] = replace(
            rows[PADDED],
            predicted_peak_bytes=predictions.peak_bytes,
            predicted_peak_with_workspace_bytes=predictions.peak_with_workspace_bytes,
            predicted_step_seconds=predictions.seconds,
        )
        found.append(ComparedShape(shape, tuple(rows.values())))
        gc.collect()
    steady = prepared.captured.steady
    return ShapesComparison(
        name=steady.graph.name,
        device=prepared.device.name,
        dims=tuple(map(str, steady.graph.dims)),
        limit_bytes=variant.graphs[0].limit_bytes,
        shapes=tuple(found),
        repeats=how.repeats,
        plan_seconds=0.0,
        capture_seconds=prepared.captured.seconds,
        notes=steady.sizes.notes,
        versions=versions(),
        seed=how.seed,
    )


def _shape(prepared: PreparedStep, factory: FactoryOfShape, seed: int) -> dict[str, int]:
    assert prepared.captured.sizes is not None
    _, batch = contestants.build(factory, seed)
    return dict(prepared.captured.sizes.binding(leaves_of(((batch,), {}))))


def _verified(factory: Factory, variants: Mapping[str, PlannedVariant], seed: int) -> dict[str, _Verified]:
    """Three steps of each program beside eager's, on fresh objects."""
    expected = verify_eager(factory, seed)
    found = {"eager": _Verified(None, contestants.one_number(expected.last_result))}
    for name, variant in variants.items():
        outcome, record = verify_planned(factory, seed, contestants.rebind(variant), expected)
        found[name] = _Verified(outcome, contestants.one_number(record.last_result))
        gc.collect()
    return found


def _measured(
    runs: list[Rival], repeats: int, clock: CallClock | None
) -> tuple[dict[str, Measured], ClockNormalisation | None]:
    """What was measured of some programs, and the speed of the processor meanwhile; None where no times are taken or predicted by a clock."""
    if clock is None:
        return contestants.measure(runs, repeats), None
    seen: list[float] = []
    found = contestants.measure(runs, repeats, between=lambda: seen.append(clock.reference_now_s()))
    return found, ClockNormalisation(clock.reference_s, median(seen)) if seen else None


def _row(
    name: str, measured: Mapping[str, Measured], verified: Mapping[str, _Verified], repeats: int
) -> ComparisonRow:
    """What was measured and verified of a program."""
    row, found, checked = ComparisonRow(name), measured.get(name), verified.get(name)
    if found is not None:
        wall, cpu = contestants.median_seconds(found.times)
        row = replace(
            row,
            measured_peak_bytes=found.memory.measured_peak_bytes,
            measured_allocator_peak_bytes=found.memory.measured_allocator_peak_bytes,
            persistent_bytes=found.memory.persistent_bytes,
            step_seconds=wall,
            step_cpu_seconds=cpu,
            repeats=repeats,
        )
    if checked is None:
        return row
    row, outcome = replace(row, loss=checked.loss), checked.outcome
    if outcome is None:
        return row
    return replace(row, max_abs_diff=outcome.max_abs_diff, bitwise_equal=outcome.bitwise_equal)


def _predicted(
    row: ComparisonRow,
    prepared: PreparedStep,
    found: StepPlan | None,
    variant: PlannedVariant,
    clock_factor: float,
) -> ComparisonRow:
    """A row with what was predicted of its program: of a plan, else of program order."""
    step = prepared.problem()
    inside = variant.graphs[0].arena
    arena = None if inside is None else inside.report
    program = None if found is None else found.plan.program(STEADY)
    predictions = baseline(step) if program is None else program.predictions
    there = predictions if arena is None else arena
    row = replace(
        row,
        predicted_peak_bytes=there.peak_bytes,
        predicted_peak_with_workspace_bytes=there.peak_with_workspace_bytes,
        persistent_bytes=step.persistent_bytes if row.persistent_bytes is None else row.persistent_bytes,
        predicted_step_seconds=(predictions.seconds + (0.0 if arena is None else arena.copy_seconds))
        * clock_factor,
        arena=arena,
    )
    if program is None:
        return row
    again = program.moves.recomputations
    return replace(
        row,
        recomputed=len(again),
        recomputed_bytes=sum(one.nbytes for one in again),
        moved_updates=program.moves.updates_moved_earlier,
        status=program.termination.reason,
    )


def _notes(
    prepared: PreparedStep,
    variants: Mapping[str, PlannedVariant],
    verified: Mapping[str, _Verified],
    rows: Sequence[ComparisonRow],
    normalisation: ClockNormalisation | None,
) -> Iterator[str]:
    """What a reader should know: causes of differences, rewrites, arenas, host code, and predictions that are off."""
    program = prepared.captured.steady
    if warning := predicted_only(prepared.device.name, prepared.captured_on):
        yield warning
    yield from program.rewrites
    if program.unknown_ops:
        yield "left alone, not in the op table: " + ", ".join(program.unknown_ops)
    for name, checked in verified.items():
        outcome = checked.outcome
        if outcome is not None and not outcome.agrees:
            worst = ", ".join(f"{group} {tensor}" for group, tensor in outcome.worst.items())
            yield f"{name} differs from eager: {worst or 'the random state or the sign of zeros'}"
    yield from prepared.told_of_card
    yield from prepared.surprises
    for name, variant in variants.items():
        for line in described_rewrites(variant.graphs[0].rewrites):
            yield f"{name} runs a rewritten graph: {line}"
    for variant in variants.values():
        if (arena := variant.graphs[0].arena) is not None:
            yield from arena_lines(arena.report)
    yield from _host_notes(prepared, rows)
    if normalisation is None:
        return
    if normalisation.is_worth_telling:
        yield (
            f"predicted step times are {normalisation.factor:.2f} times those that plans are decided by: a piece of work that took "
            f"{format_seconds(normalisation.kept_s)} when operations were timed took {format_seconds(normalisation.seen_s)} while the programs ran"
        )
    yield from cost_notes(
        rows, partial(_timed_again, prepared, normalisation.factor), clock_of(prepared.captured_on)
    )


def _host_notes(prepared: PreparedStep, rows: Sequence[ComparisonRow]) -> Iterator[str]:
    """What host code after the program takes, which no plan holds."""
    if behind := bytes_after(prepared.captured.steady):
        yield f"{format_bytes(behind)} belong to host code after the program: they are part of every row, and no plan moves them"
    for row in () if prepared.captured.host is None else rows:
        predicted, measured = row.predicted_peak_bytes, row.measured_peak_bytes
        if predicted is not None and measured is not None and measured > predicted:
            yield f"host code after {row.name} makes its peak {format_bytes(measured - predicted)} higher: no plan holds what it makes"


def _timed_again(prepared: PreparedStep, clock_factor: float, are_too_long: bool) -> float | None:
    seconds = prepared.time_again(are_too_long=are_too_long)
    return None if seconds is None else seconds * clock_factor


def cost_notes(
    rows: Sequence[ComparisonRow],
    time_again: Callable[[bool], float | None] | None = None,
    clock: Clock = "processor",
) -> tuple[str, ...]:
    """Whether program order took another time than predicted, so that limits of time are held less well than usual.

    Predictions are from costs that were measured on this machine. `time_again` times the dearest operations again, told
    whether they are said to take too long, and gives seconds of program order; it is called once, where that is more than
    a quarter off. Other programs lengthen what a clock on the wall says, so a step that took longer by it is no reason.
    """
    row = next((row for row in rows if row.name == "baseline"), None)
    took = None if row is None else row.step_cpu_seconds if clock == "processor" else row.step_seconds
    if row is None or row.predicted_step_seconds is None or took is None:
        return ()
    predicted = row.predicted_step_seconds
    if abs(predicted - took) <= max(_FAR_OFF * took, _GUARDS_S):
        return ()
    told = (
        f"program order was predicted to take {format_seconds(predicted)} and took {format_seconds(took)}: "
    )
    is_wrong = abs(predicted - took) > _WRONG * took and (predicted > took or clock == "processor")
    again = time_again(predicted > took) if is_wrong and time_again is not None else None
    if again is not None:
        line = (
            f"{told}its dearest operations were timed again, and by what they take now it is {format_seconds(again)}; "
            "plans that are made from now on go by that"
        )
    else:
        line = f"{told}operations may have been timed beside other work; `neaptide profile TARGET --refresh` times them again"
    return (line,)

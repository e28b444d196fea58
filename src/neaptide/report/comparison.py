"""Makes comparisons: runs each program on fresh objects and puts what was predicted beside what was measured."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from neaptide.cost.call_clock import CallClock
from neaptide.errors import InfeasibleBudget
from neaptide.frontends.programs.host_bytes import bytes_behind
from neaptide.planner.strategies.program_order import baseline
from neaptide.plans import BudgetRecord
from neaptide.policy.plan_facts import versions
from neaptide.policy.points.arena_variant import in_arenas
from neaptide.policy.prepared_step import PreparedStep
from neaptide.report.arena_text import arena_lines
from neaptide.report.device_notes import predicted_only
from neaptide.report.model import Comparison, ComparisonRow
from neaptide.runtime.arena.plan import ArenaOptions
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestant_process import rivals
from neaptide.runtime.comparing.contestants import Factory, Measured, Measuring, Rival
from neaptide.runtime.comparing.trials import Clock, clock_of
from neaptide.runtime.comparing.verification import Verification, verify_eager, verify_planned
from neaptide.runtime.measuring.pace import Pace, PaceReadings
from neaptide.runtime.steps.planned_graph import PlannedVariant
from neaptide.runtime.steps.step_plan import StepPlan
from neaptide.schedule.problem import StepProblem
from neaptide.transform.rules import described_rewrites
from neaptide.units import format_bytes, format_seconds

ARENA = "arena"
_FAR_OFF: Final = 0.1
"""Of a measured time: by how much a prediction may be off before that is told."""
_WRONG: Final = 0.25
"""Likewise, before the dearest operations are timed again."""
_GUARDS_S: Final = 2e-3
"""What guards and inputs of a step may take, which no prediction has."""


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
    """Run and measure eager, baseline and the plans.

    Args:
        factory: makes fresh objects for each program.
        prepared: the captured step and its costs.
        plans: by row name; the first, if any, is the one that the budget was for.
        how: they are measured.
        plan_seconds: recorded.
        arena: adds a row: the first plan, else the baseline, inside an arena.
        missed: how the first plan is beyond its budget; None where it is within.
    """
    run, repeats, seed = how.runs, how.repeats, how.seed
    say = how.progress or (lambda _text: None)
    variants: dict[str, PlannedVariant] = {"baseline": prepared.baseline_variant()}
    variants |= {name: found.variant for name, found in plans.items()}
    if arena is not None:
        inside = next(iter(plans), "baseline")
        variants[ARENA] = in_arenas(prepared, variants[inside], arena)
        plans = {**plans, ARENA: plans[inside]} if plans else plans
    measured: dict[str, Measured] = {}
    pace: Pace | None = None
    verified: dict[str, tuple[Verification, float | None]] = {}
    eager_loss = None
    if run and how.verify:
        say("verifying: three steps of each program against eager")
        expected = verify_eager(factory, seed)
        eager_loss = contestants.one_number(expected.last_result)
        for name, variant in variants.items():
            outcome, record = verify_planned(factory, seed, contestants.rebind(variant), expected)
            verified[name] = (outcome, contestants.one_number(record.last_result))
            gc.collect()
        del expected
    if run:
        say("measuring memory and time")
        with rivals(factory, seed, own_processes=how.own_processes) as make:
            runs = [make("eager", None)] if how.eager else []
            runs += [make(name, variant) for name, variant in variants.items()]
            measured, pace = _measured(runs, repeats, prepared.clock)
    rows = (
        [replace(measured_row("eager", measured["eager"], repeats), loss=eager_loss)]
        if how.eager and run
        else []
    )
    factor = 1.0 if pace is None else pace.factor
    rows += [
        _row(
            name, prepared, plans.get(name), measured.get(name), verified.get(name), repeats, variant, factor
        )
        for name, variant in variants.items()
    ]
    first = next(iter(plans.values()), None)
    bounds = prepared.problem() if first is None else first.plan.programs[0].predictions
    marks = [m.memory.high_water_mark_bytes for m in measured.values() if m.memory.high_water_mark_bytes]
    return Comparison(
        name=prepared.captured.steady.graph.name,
        device=prepared.device.name,
        rows=tuple(rows),
        budget_bytes=None if first is None or _is_unlimited(first) else first.plan.programs[0].budget_bytes,
        lower_bound_bytes=bounds.lower_bound_bytes,
        order_lower_bound_bytes=bounds.order_lower_bound_bytes,
        is_for_bytes=first is not None and _asks_for_bytes(first.plan.budget),
        bounds_are_of_rewritten=first is not None and bool(first.plan.programs[0].rewrites),
        plan_seconds=plan_seconds,
        capture_seconds=prepared.captured.seconds,
        high_water_mark_bytes=max(marks, default=None),
        notes=(
            *_notes(prepared, verified),
            *_rewrite_notes(variants),
            *_arena_notes(variants),
            *_behind_notes(prepared, rows),
            *_pace_notes(pace),
            *(
                ()
                if pace is None
                else cost_notes(rows, partial(_timed_again, prepared, factor), clock_of(prepared.captured_on))
            ),
        ),
        versions=versions(),
        seed=seed,
        budget_missed="" if missed is None else "; ".join(filter(None, (missed.what, missed.where))),
        pace_kept_s=None if pace is None else pace.kept_s,
        pace_seen_s=None if pace is None else pace.seen_s,
    )


def _measured(
    runs: list[Rival], repeats: int, clock: CallClock | None
) -> tuple[dict[str, Measured], Pace | None]:
    """What was measured of some programs, and the pace meanwhile; None where no times are taken or predicted by a clock."""
    if clock is None:
        return contestants.measure(runs, repeats), None
    readings = PaceReadings(clock)
    return contestants.measure(runs, repeats, between=readings.read), readings.pace()


def _pace_notes(pace: Pace | None) -> tuple[str, ...]:
    if pace is None or not pace.is_worth_telling:
        return ()
    line = (
        f"predicted step times are {pace.factor:.2f} times those that plans are decided by: a piece of work that took "
        f"{format_seconds(pace.kept_s)} when operations were timed took {format_seconds(pace.seen_s)} while the programs ran"
    )
    return (line,)


def _timed_again(prepared: PreparedStep, pace_factor: float, are_too_long: bool) -> float | None:
    seconds = prepared.time_again(are_too_long=are_too_long)
    return None if seconds is None else seconds * pace_factor


def cost_notes(
    rows: Sequence[ComparisonRow],
    time_again: Callable[[bool], float | None] | None = None,
    clock: Clock = "processor",
) -> tuple[str, ...]:
    """Whether program order took another time than predicted, so that limits of time are held less well than usual.

    Args:
        rows: of the comparison; predictions are from costs that were measured on this machine.
        time_again: times the dearest operations again, told whether they are said to take too long; called once, where program
            order is more than a quarter off. Gives seconds of program order.
        clock: that predictions are told by. Other programs lengthen what a clock on the wall says, so a step that took longer
            by it is no reason to time operations again.
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


def _behind_notes(prepared: PreparedStep, rows: Sequence[ComparisonRow]) -> tuple[str, ...]:
    """What host code behind the program takes, which no plan holds."""
    behind = bytes_behind(prepared.captured.steady)
    notes = []
    if behind:
        notes.append(
            f"{format_bytes(behind)} belong to host code behind the program: they are part of every row, and no plan moves them"
        )
    if prepared.captured.host is None:
        return tuple(notes)
    for row in rows:
        predicted, measured = row.predicted_peak_bytes, row.measured_peak_bytes
        if predicted is not None and measured is not None and measured > predicted:
            notes.append(
                f"host code behind {row.name} makes its peak {format_bytes(measured - predicted)} higher: no plan holds what it makes"
            )
    return tuple(notes)


def _asks_for_bytes(asked: BudgetRecord) -> bool:
    return asked.peak is None and asked.latency is not None


def measured_row(name: str, measured: Measured, repeats: int) -> ComparisonRow:
    """The row of a program of which nothing is predicted."""
    wall, cpu = contestants.median_seconds(measured.times)
    return ComparisonRow(
        name=name,
        measured_peak_bytes=measured.memory.measured_peak_bytes,
        measured_allocator_peak_bytes=measured.memory.measured_allocator_peak_bytes,
        resident_bytes=measured.memory.resident_bytes,
        step_seconds=wall,
        step_cpu_seconds=cpu,
        repeats=repeats,
    )


def _row(
    name: str,
    prepared: PreparedStep,
    found: StepPlan | None,
    measured: Measured | None,
    verified: tuple[Verification, float | None] | None,
    repeats: int,
    variant: PlannedVariant,
    pace_factor: float,
) -> ComparisonRow:
    step = prepared.problem()
    inside = variant.graphs[0].arena
    arena = None if inside is None else inside.report
    if found is None:
        peak, with_workspace, seconds = _baseline_prediction(step)
        recomputed, recomputed_bytes, moved, status = 0, 0, 0, ""
    else:
        program = found.plan.program("steady")
        predictions, moves = program.predictions, program.moves
        peak, with_workspace = predictions.peak_bytes, predictions.peak_with_workspace_bytes
        seconds = predictions.seconds
        recomputed = len(moves.recomputations)
        recomputed_bytes = sum(r.nbytes for r in moves.recomputations)
        moved, status = moves.updates_moved_earlier, program.termination.reason
    if arena is not None:
        peak, with_workspace = arena.peak_bytes, arena.peak_with_workspace_bytes
        seconds += arena.copy_seconds
    wall, cpu = contestants.median_seconds(measured.times if measured else None)
    return ComparisonRow(
        name=name,
        predicted_peak_bytes=peak,
        measured_peak_bytes=measured.memory.measured_peak_bytes if measured else None,
        predicted_peak_with_workspace_bytes=with_workspace,
        measured_allocator_peak_bytes=measured.memory.measured_allocator_peak_bytes if measured else None,
        resident_bytes=measured.memory.resident_bytes if measured else step.resident_bytes,
        step_seconds=wall,
        step_cpu_seconds=cpu,
        repeats=repeats if measured else 0,
        loss=verified[1] if verified else None,
        max_abs_diff=verified[0].max_abs_diff if verified else {},
        bitwise_equal=verified[0].bitwise_equal if verified else None,
        predicted_step_seconds=seconds * pace_factor,
        recomputed=recomputed,
        recomputed_bytes=recomputed_bytes,
        moved_updates=moved,
        status=status,
        arena=arena,
    )


def _is_unlimited(found: StepPlan) -> bool:
    budget = found.plan.budget
    return budget.peak is None and budget.latency is None


def _baseline_prediction(step: StepProblem) -> tuple[int, int, float]:
    found = baseline(step)
    return found.peak_bytes, found.peak_with_workspace_bytes, found.seconds


def _rewrite_notes(variants: Mapping[str, PlannedVariant]) -> tuple[str, ...]:
    return tuple(
        f"{name} runs a rewritten graph: {line}"
        for name, variant in variants.items()
        for line in described_rewrites(variant.graphs[0].rewrites)
    )


def _arena_notes(variants: Mapping[str, PlannedVariant]) -> tuple[str, ...]:
    return tuple(
        line
        for variant in variants.values()
        for arena in [planned.arena for planned in variant.graphs[:1]]
        if arena is not None
        for line in arena_lines(arena.report)
    )


def _notes(
    prepared: PreparedStep, verified: Mapping[str, tuple[Verification, float | None]]
) -> tuple[str, ...]:
    program = prepared.captured.steady
    warning = predicted_only(prepared.device.name, prepared.captured_on)
    notes = [*([warning] if warning else []), *program.rewrites]
    if program.unknown_ops:
        notes.append("left alone, not in the op table: " + ", ".join(program.unknown_ops))
    for name, (outcome, _) in verified.items():
        if not outcome.agrees:
            worst = ", ".join(f"{group} {tensor}" for group, tensor in outcome.worst.items())
            notes.append(f"{name} differs from eager: {worst or 'the random state or the sign of zeros'}")
    return (*notes, *prepared.surprises)

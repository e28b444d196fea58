"""Compares a plan for all shapes at some of them: with eager there, and with batches padded to the largest shape."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace

from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.policy.plan_facts import versions
from neaptide.policy.prepared_step import PreparedStep
from neaptide.report.comparison import measured_row
from neaptide.report.model import ComparedShape, ComparisonRow, ShapesComparison
from neaptide.runtime.comparing import contestants
from neaptide.runtime.comparing.contestant_messages import CapturedFor
from neaptide.runtime.comparing.contestant_process import rivals
from neaptide.runtime.comparing.contestants import Measuring
from neaptide.runtime.comparing.shape_batches import FactoryOfShape
from neaptide.runtime.comparing.verification import Verification, verify_eager, verify_planned
from neaptide.runtime.steps.planned_graph import PlannedVariant
from neaptide.runtime.steps.predictions import predicted_at, predicted_seconds_at
from neaptide.runtime.steps.step_plan import StepPlan

PADDED = "padded"


def compare_at_shapes(
    prepared: PreparedStep,
    variant: PlannedVariant,
    padded: StepPlan,
    largest: FactoryOfShape,
    shapes: Sequence[FactoryOfShape],
    captured_for: CapturedFor,
    how: Measuring,
    *,
    plan_seconds: float,
) -> ShapesComparison:
    """Run and measure, at each of some shapes, eager, a plan for all shapes, and a plan for the largest shape.

    Args:
        prepared: the step, captured with dims that vary.
        variant: the plan for all shapes.
        padded: a plan for the largest shape alone.
        largest: makes a batch of that shape.
        shapes: make batches of the others.
        captured_for: how the step was captured.
        how: they are measured; numbers of the plan are verified.
        plan_seconds: recorded.
    """
    found, seed, repeats = [], how.seed, how.repeats
    for factory in shapes:
        prepared.say(
            "measuring at " + ", ".join(f"{d} = {s}" for d, s in _shape(prepared, factory, seed).items())
        )
        with (
            rivals(factory, seed, own_processes=how.own_processes, captured_for=captured_for) as make,
            rivals(largest, seed, own_processes=how.own_processes) as make_padded,
        ):
            runs = [make("eager", None)] if how.eager else []
            runs += [make("plan", variant), make_padded(PADDED, padded.variant)]
            measured = contestants.measure(runs, repeats)
        rows = {name: measured_row(name, of, repeats) for name, of in measured.items()}
        checked = _verified(variant, factory, seed) if how.verify else None
        shape = _shape(prepared, factory, seed)
        rows["plan"] = _predicted(rows["plan"], prepared, variant, shape, checked)
        predictions = padded.plan.program("steady").predictions
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
        repeats=repeats,
        plan_seconds=plan_seconds,
        capture_seconds=prepared.captured.seconds,
        notes=steady.sizes.notes,
        versions=versions(),
        seed=seed,
    )


def _shape(prepared: PreparedStep, factory: FactoryOfShape, seed: int) -> dict[str, int]:
    assert prepared.captured.sizes is not None
    _, batch = contestants.build(factory, seed)
    return dict(prepared.captured.sizes.binding(leaves_of(((batch,), {}))))


def _verified(variant: PlannedVariant, factory: FactoryOfShape, seed: int) -> Verification:
    expected = verify_eager(factory, seed)
    outcome, _ = verify_planned(factory, seed, contestants.rebind(variant), expected)
    return outcome


def _predicted(
    row: ComparisonRow,
    prepared: PreparedStep,
    variant: PlannedVariant,
    shape: dict[str, int],
    checked: Verification | None,
) -> ComparisonRow:
    planned = variant.graphs[0]
    alone, with_workspace = predicted_at(planned, shape)
    return replace(
        row,
        predicted_peak_bytes=alone,
        predicted_peak_with_workspace_bytes=with_workspace,
        predicted_step_seconds=predicted_seconds_at(planned, shape, prepared.device),
        max_abs_diff={} if checked is None else checked.max_abs_diff,
        bitwise_equal=None if checked is None else checked.bitwise_equal,
    )

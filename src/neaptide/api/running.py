"""Some steps under a plan, measured."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Final, Unpack

from neaptide.api.asking import ask_of_plan, costed_for, placed
from neaptide.errors import NumericsError
from neaptide.frontends.objects.batch_objects import leaves_of
from neaptide.options import RunOptions
from neaptide.plans import Plan
from neaptide.policy.costed_step import Progress
from neaptide.policy.plan_facts import versions
from neaptide.policy.plan_matching import matched
from neaptide.report.model import RunReport
from neaptide.runtime.comparing import contestants, verification
from neaptide.runtime.comparing.contestants import Factory
from neaptide.runtime.steps.arena_report import predicted_at
from neaptide.runtime.steps.arguments import check_plan
from neaptide.runtime.steps.capturing import capture
from neaptide.runtime.steps.planned_step import PlannedStep
from neaptide.settings import DEFAULTS, check_setting

_AFTER_DIFFERENCE: Final = {
    "keep": "report this with the plan; run the step without a plan meanwhile",
    "undo": 'plan it without checkpoints="undo": eager runs checkpointed functions twice, this plan runs them once',
}


def run(
    factory: Factory,
    plan: Plan | str | Path,
    *,
    steps: int = DEFAULTS.steps,
    verify: bool = False,
    seed: int = DEFAULTS.seed,
    progress: Progress | None = None,
    name: str = "",
    **options: Unpack[RunOptions],
) -> RunReport:
    """Run some steps under a plan and measure them.

    Args:
        factory: as for `compare`.
        plan: for this program, or the path of its file.
        steps: how many, at least 1.
        verify: compare three steps with eager's first.
        seed: of the factory and the runs.
        progress: told what is going on.
        name: for the report.
        **options: see `neaptide.options.RunOptions`.

    Raises:
        PlanMismatch: the plan is for another program.
        PlanError: the plan is not legal for this program, or its numbers are not this program's.
        NumericsError: the numbers differ from eager's.
        UsageError: no step to run, a step instead of a factory, no plan, or a plan for all shapes that has no arena.
    """
    check_setting("steps", steps)
    check_setting("seed", seed)
    plan = check_plan(plan)
    ask = ask_of_plan("run", plan, options, RunOptions)
    say = progress or (lambda _text: None)
    step, batch = contestants.build(factory, seed)
    say("capturing the step")
    captured = capture(step, (batch,), name=name or plan.name, dynamic=ask.dims, checkpoints=ask.checkpoints)
    prepared = costed_for(ask, captured, progress)
    variant = matched(plan, prepared, ask.limits.time_s)
    variant = placed(prepared, variant, ask.arena)
    differences: dict[str, float] = {}
    equal = None
    if verify:
        say("verifying against eager")
        expected = verification.verify_eager(factory, seed)
        outcome, _ = verification.verify_planned(factory, seed, contestants.rebind(variant), expected)
        differences, equal = outcome.max_abs_diff, outcome.bitwise_equal
        if not outcome.agrees:
            worst = ", ".join(f"{group}: {tensor}" for group, tensor in outcome.worst.items())
            raise NumericsError(
                "the planned step gives other numbers than eager",
                where=worst or "only the sign of zeros or the random state differ",
                why="; ".join(f"{group} by up to {d:.3g}" for group, d in differences.items() if d),
                next_step=_AFTER_DIFFERENCE[plan.checkpoints],
            )
    runner = PlannedStep(step, contestants.never_again, variant, on_mismatch="error")
    losses: list[float] = []
    seconds = []
    with runner.state_on_host():
        for _ in range(steps):
            began = time.perf_counter()
            loss = contestants.one_number(runner(batch))
            seconds.append(time.perf_counter() - began)
            if loss is not None:
                losses.append(loss)
        say("measuring memory")
        memory = contestants.measure_memory(runner, batch)
    if captured.sizes is not None:
        shape = captured.sizes.binding(leaves_of(((batch,), {})))
        peak_bytes, with_workspace = predicted_at(variant.graphs[0], shape)
    else:
        predicted = runner.arena or plan.program("steady").predictions
        peak_bytes, with_workspace = predicted.peak_bytes, predicted.peak_with_workspace_bytes
    return RunReport(
        name=name or plan.name,
        steps=steps,
        step_seconds=statistics.median(seconds),
        losses=tuple(losses),
        predicted_peak_bytes=peak_bytes,
        measured_peak_bytes=memory.measured_peak_bytes,
        predicted_peak_with_workspace_bytes=with_workspace,
        measured_allocator_peak_bytes=memory.measured_allocator_peak_bytes,
        max_abs_diff=differences,
        bitwise_equal=equal,
        calls=runner.counts.describe(),
        versions=versions(),
        seed=seed,
        arena=runner.arena,
        arena_on_the_way=runner.arena_on_the_way(),
    )

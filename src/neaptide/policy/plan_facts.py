"""What a plan says of the place and the step that it was made for, and an entry of it beside its program."""

from __future__ import annotations

import platform
from dataclasses import replace

import torch

from neaptide.analysis.sizes import evaluate_storage_bytes, main_device
from neaptide.ask import BITWISE, CLOSE, Ask
from neaptide.errors import PlanError, PlanMismatch, RewriteError
from neaptide.frontends.guards.fact_words import described
from neaptide.frontends.programs.captured import CapturedProgram, CapturedStep
from neaptide.ir.registry import OpRegistry
from neaptide.planner.check_plan import check_program
from neaptide.planner.graphs.rewritten_plan import replayed
from neaptide.plans import STEADY, BudgetRecord, Plan, PlannedProgram, ShapesRecord, wrong_field
from neaptide.policy.costed_step import CostedStep
from neaptide.runtime.steps.planned_graph import PlannedGraph
from neaptide.schedule.problem import StepProblem
from neaptide.version import VERSION


def versions() -> dict[str, str]:
    """Versions of what a prediction or a measurement depends on."""
    return {
        "neaptide": VERSION,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def described_signature(captured: CapturedStep) -> tuple[tuple[str, str], ...]:
    """The facts that a call must agree on, as text for a plan file; those that only this process knows left out."""
    signature = captured.signature
    facts = (*signature.named_batch(), *signature.state, *signature.hyper_parameters, *signature.modes)
    found = {"the batch": signature.structure()}
    for name, fact in facts:
        # Each program of a step says for itself which sizes it is for.
        text, known = described(fact), found.get(name)
        found[name] = text if known in (None, text) else f"{known}; {text}"
    return tuple(found.items())


def plan_of(
    step: CostedStep,
    ask: Ask,
    captured_on: str,
    programs: tuple[PlannedProgram, ...] = (),
    all_shapes: ShapesRecord | None = None,
    *,
    clock_factor: float = 1.0,
) -> Plan:
    """A plan as data: what was asked, what it was made for, and its entries; `clock_factor` as in `BudgetRecord`."""
    asked = step.on_card(ask.budget)
    bytes_of_budget = (asked.outside_bytes, ask.least_bytes, asked.host)
    return Plan(
        programs=programs,
        name=step.captured.steady.graph.name,
        budget=BudgetRecord(
            asked.peak, asked.latency, *bytes_of_budget, clock_factor, asked.state_between_steps
        ),
        seed=ask.limits.seed,
        device=step.device.name,
        versions=versions(),
        atomic=ask.atomic,
        signature=described_signature(step.captured),
        captured_on=captured_on,
        allow_nondeterministic=step.registry.bits_may_vary,
        numerics=CLOSE if ask.numerics == CLOSE else BITWISE,
        axes=step.axes if ask.explains and all_shapes is None else (),
        all_shapes=all_shapes,
        checkpoints=step.captured.checkpoints,
    )


def replayed_graph(entry: PlannedProgram, program: CapturedProgram, registry: OpRegistry) -> PlannedGraph:
    """The graph that an entry of a plan is for, in program order."""
    edited = replayed(entry, program.graph, registry)
    try:
        return PlannedGraph.captured(program).rewritten(edited, entry.rewrites)
    except RewriteError as error:
        raise wrong_field(f"{entry.role}.captured.rewrites", f"are not legal: {error.what}") from error


def checked_graph(
    entry: PlannedProgram, planned: PlannedGraph, step: StepProblem, registry: OpRegistry, *, atomic: bool
) -> PlannedGraph:
    """What runs under an entry of a plan, checked; `planned` is its graph and `step` that as integers."""
    captured = None if entry.captured is None else planned.program.graph
    schedule = check_program(entry, planned.graph, step, registry, captured=captured, atomic=atomic)
    return replace(planned, schedule=schedule, saved=entry.saved, host_bytes=entry.predictions.host_bytes)


def needs_leave(error: PlanError) -> PlanError:
    """The refusal of a plan that recomputes what it may, for a caller that has not allowed it."""
    return PlanError(
        error.what,
        why="the plan may recompute operations whose bits differ from run to run",
        next_step="where that is meant, say allow_nondeterministic=True here as well",
    )


def captured_on(captured: CapturedStep) -> str:
    """Kind of the device whose kernels a step was captured with, such as `cpu`."""
    graph = captured.steady.graph
    largest = {dim.name: dim.low if dim.high is None else dim.high for dim in graph.dims}
    return main_device(graph, evaluate_storage_bytes(graph, largest)).partition(":")[0]


def mismatch(plan: Plan, captured: CapturedStep, index: int = 0) -> PlanMismatch:
    """The refusal of a plan for another step: what differs, in words; of a plan for all shapes in program `index`."""
    here = captured_on(captured)
    if plan.captured_on not in {"", here}:
        return PlanMismatch(
            f"the plan for {plan.name or 'another step'} is for operations of {plan.captured_on}, "
            f"and the step is on {here}",
            why=f"it was made for {plan.device}, whose kernels are other operations",
            next_step=f"put model and batch on a {plan.captured_on} device, or plan the step for the device it runs on",
        )
    then, now = dict(plan.signature), dict(described_signature(captured))
    differing = [
        f"{key} is {now.get(key, 'gone')}, was {then.get(key, 'not there')}"
        for key in {**then, **now}
        if then.get(key) != now.get(key)
    ]
    more = f"; and {len(differing) - 4} more" if len(differing) > 4 else ""
    ours, theirs = versions(), plan.versions
    others = [
        f"{key} {ours[key]}, was {theirs[key]}" for key in ours if theirs.get(key, ours[key]) != ours[key]
    ]
    why = "; ".join(differing[:4]) + more or "shapes and flags agree but the operations differ"
    if others:
        why += f" (versions: {', '.join(others)})"
    if plan.all_shapes is not None:  # ranges are told first: they depend on the call that is captured
        entries = plan.all_shapes.programs
        asked = next((one.dims for one in entries if (one.role == STEADY) == (index == 0)), ())
        dims = captured.programs[index].graph.dims
        if tuple(map(str, asked)) != tuple(map(str, dims)):
            told = ", ".join(map(str, dims)) or "no dim that varies"
            why = f"captured at this call it is for {told}, the plan is for {', '.join(map(str, asked))}"
    return PlanMismatch(
        f"the plan for {plan.name or 'another step'} does not fit this step",
        why=why,
        next_step="plan this step, or use the model, batch shape and versions that the plan was made for",
    )

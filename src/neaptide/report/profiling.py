"""Makes profile reports and the error for a budget that cannot be reached: what is alive, and where it comes from."""

from __future__ import annotations

from neaptide.analysis.profile_bytes import MemoryProfile, memory_profile
from neaptide.errors import InfeasibleBudget
from neaptide.ir.schedule import Schedule
from neaptide.report.model import AliveRow, ProfileReport
from neaptide.runtime.prepared_step import PreparedStep, StepPlan, versions
from neaptide.units import format_bytes

NOT_COUNTED = (
    "what the process holds outside the step: the interpreter, libraries, data loaders",
    "fragmentation and rounding of the allocator",
    "scratch that oneDNN and BLAS take from the system past PyTorch's allocator",
)
_NAMED_ALIVE = 5  # of the values alive at the peak, how many an error message names


def profile_report(prepared: PreparedStep, *, has_device: bool, seed: int) -> ProfileReport:
    """The profile of a captured step in program order. Runs nothing but, when asked for, single operations."""
    program = prepared.captured.steady
    graph, costs, step = program.graph, prepared.costs(), prepared.problem()
    found = step_profile(prepared, Schedule.program_order(graph))
    at_peak = graph.nodes[found.peak_step].source if found.peak_step is not None else None
    capacity = prepared.device.usable_bytes if has_device else None
    over = None if capacity is None else found.peak_with_workspace_bytes - capacity
    kinds = {
        str(kind): series[found.peak_step]
        for kind, series in found.bytes_at_by_kind.items()
        if found.peak_step is not None and series[found.peak_step]
    }
    return ProfileReport(
        name=graph.name,
        device=prepared.device.name,
        predicted_peak_bytes=found.peak_bytes,
        predicted_peak_with_workspace_bytes=found.peak_with_workspace_bytes,
        workspace_is_known=costs.are_measured,
        resident_bytes=found.resident_bytes,
        lower_bound_bytes=step.lower_bound_bytes,
        order_lower_bound_bytes=step.order_lower_bound_bytes,
        bytes_by_kind_at_peak=kinds,
        alive_at_peak=alive_rows(found),
        peak_at=at_peak.location if at_peak else "",
        peak_module=at_peak.module if at_peak else "",
        peak_phase=at_peak.phase if at_peak else "",
        predicted_step_seconds=step.baseline_seconds,
        seconds_are_measured=costs.are_measured,
        capacity_bytes=capacity,
        fits=None if over is None else over <= 0,
        over_bytes=over,
        capture_seconds=prepared.captured.seconds,
        operations=len(graph.nodes),
        unknown_ops=program.unknown_ops,
        rewrites=program.rewrites,
        not_counted=(*NOT_COUNTED, *prepared.surprises),
        versions=versions(),
        seed=seed,
    )


def step_profile(prepared: PreparedStep, schedule: Schedule) -> MemoryProfile:
    """Bytes of a usual step under a schedule, with what is known of workspace and true sizes."""
    costs = prepared.costs()
    return memory_profile(
        prepared.captured.steady.graph,
        schedule,
        workspace=costs.workspace,
        storage_bytes=costs.storage_bytes,
    )


def alive_rows(profile: MemoryProfile) -> tuple[AliveRow, ...]:
    """What is alive at the peak, largest first."""
    return tuple(
        AliveRow(
            alive.name,
            str(alive.kind),
            alive.nbytes,
            alive.source.location,
            alive.source.code,
            alive.source.module,
        )
        for alive in profile.alive_at_peak
        if alive.nbytes
    )


def infeasible(prepared: PreparedStep, found: StepPlan, why: str) -> InfeasibleBudget:
    """The error for a plan above its budget, with the values alive at its peak; the plan is in `.plan`."""
    program = found.plan.program("steady")
    smallest = program.predictions.peak_with_workspace_bytes
    alive = alive_rows(step_profile(prepared, found.variant.schedules[0]))
    names = tuple(f"{a.name} ({a.kind}, {format_bytes(a.nbytes)})" for a in alive[:_NAMED_ALIVE])
    at_least = max(smallest, program.budget_bytes)
    return InfeasibleBudget(
        f"no plan within {format_bytes(program.budget_bytes)} was found; the lowest peak is {format_bytes(smallest)}",
        smallest_peak_bytes=smallest,
        lower_bound_bytes=program.predictions.lower_bound_bytes,
        alive=names,
        plan=found.plan,
        where="alive at that peak: " + ", ".join(names),
        why=why or f"no schedule goes below {format_bytes(program.predictions.lower_bound_bytes)}",
        next_step=f"plan for at least {format_bytes(at_least)}, or make the batch smaller",
    )

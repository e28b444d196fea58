"""Makes profile reports and the error for a budget that cannot be reached: what is live, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.analysis.profile_bytes import MemoryProfile, memory_profile
from neaptide.budget import Budget
from neaptide.errors import InfeasibleBudget
from neaptide.outcome import TerminationReason
from neaptide.plans import NONE_WITHIN, PlannedProgram, TrialsRecord, described_role
from neaptide.policy.plan_facts import versions
from neaptide.policy.prepared_step import PreparedStep
from neaptide.report.allocated import not_exact
from neaptide.report.cells import not_counted
from neaptide.report.model import LiveRow, ProfileReport
from neaptide.runtime.steps.planned_graph import PlannedGraph, StepPlan
from neaptide.units import format_bytes, format_seconds

_NAMED_LIVE = 5  # of the values live at the peak, how many an error message names


def profile_report(prepared: PreparedStep, *, has_device: bool, seed: int) -> ProfileReport:
    """The profile of a captured step in program order. Runs nothing but, when asked for, single operations."""
    program = prepared.captured.steady
    graph, step = program.graph, prepared.problem()
    found = step_profile(prepared, PlannedGraph.captured(program))
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
        workspace_is_known=prepared.is_measured,
        persistent_bytes=found.persistent_bytes,
        lower_bound_bytes=step.lower_bound_bytes,
        order_lower_bound_bytes=step.order_lower_bound_bytes,
        bytes_by_kind_at_peak=kinds,
        live_at_peak=live_rows(found, prepared.user_names()),
        peak_at=at_peak.location if at_peak else "",
        peak_module=at_peak.module if at_peak else "",
        peak_phase=at_peak.phase if at_peak else "",
        predicted_step_seconds=step.baseline_seconds,
        seconds_are_measured=prepared.is_measured,
        capacity_bytes=capacity,
        fits=None if over is None else over <= 0,
        over_bytes=over,
        capture_seconds=prepared.captured.seconds,
        operations=len(graph.nodes),
        unknown_ops=program.unknown_ops,
        rewrites=program.rewrites,
        not_counted=(
            *not_counted(prepared.device.kind),
            *(not_exact(graph) if has_device else ()),
            *prepared.told_of_card,
            *prepared.surprises,
        ),
        versions=versions(),
        seed=seed,
        captured_on=prepared.captured_on,
        axes=prepared.axes,
    )


def step_profile(prepared: PreparedStep, planned: PlannedGraph) -> MemoryProfile:
    """Bytes of one program as it runs, with what is known of workspace and true sizes."""
    prices = prepared.prices(planned.graph, planned.schedule.bodies)
    return memory_profile(
        planned.graph,
        planned.schedule,
        workspace=prices.workspace,
        storage_bytes=prices.storage_bytes,
    )


def live_rows(profile: MemoryProfile, user_names: Mapping[int, str]) -> tuple[LiveRow, ...]:
    """What is live at the peak, largest first; `user_names` are those of the caller's storages, by id."""
    return tuple(
        LiveRow(
            user_names.get(live.storage, live.name),
            str(live.kind),
            live.nbytes,
            live.source.location,
            live.source.code,
            live.source.module,
        )
        for live in profile.live_at_peak
        if live.nbytes
    )


def over_budget(prepared: PreparedStep, found: StepPlan) -> InfeasibleBudget | None:
    """The error for a plan above its budget, with the values live at its peak and the plan; None when it keeps to it.

    Every program must keep to the bytes, the first steps too; the usual one to the time as well.
    """
    too_high = over_bytes(prepared, found)
    if too_high is not None:
        return too_high
    program = found.plan.programs[0]
    predicted = program.predictions
    if program.trials is not None:
        return _too_slow(prepared, found, program.trials)
    asked = found.plan.budget
    seconds, baseline_seconds = (
        predicted.seconds * asked.clock_factor,
        predicted.baseline_seconds * asked.clock_factor,
    )
    longest = Budget(peak=None, latency=asked.latency).resolve_latency(baseline_seconds)
    if longest is None or seconds <= longest:
        return None
    return InfeasibleBudget(
        f"no plan within {format_bytes(program.budget_bytes)} that takes at most {format_seconds(longest)} was found",
        smallest_peak_bytes=predicted.peak_with_workspace_bytes,
        lower_bound_bytes=predicted.lower_bound_bytes,
        live=_live_names(prepared, found, program, 0),
        plan=found.plan,
        why=f"the fastest found takes {format_seconds(seconds)}, {seconds / baseline_seconds - 1:+.1%} over the baseline",
        next_step="allow more bytes, or more time",
    )


def _too_slow(prepared: PreparedStep, found: StepPlan, trials: TrialsRecord) -> InfeasibleBudget | None:
    """The error where no plan measured within the limit of time."""
    if trials.reason != NONE_WITHIN:
        return None
    predicted, row = found.plan.programs[0].predictions, trials.rows[trials.chosen]
    return InfeasibleBudget(
        f"none of {len(trials.rows)} plans that were run measured within the latency {found.plan.budget.latency}",
        smallest_peak_bytes=predicted.peak_with_workspace_bytes,
        lower_bound_bytes=predicted.lower_bound_bytes,
        live=_live_names(prepared, found, found.plan.programs[0], 0),
        plan=found.plan,
        why=f"the fastest took {row.measured_ratio:.3f} of the time of {trials.beside}",
        next_step="allow more time, or more trials",
    )


def over_bytes(prepared: PreparedStep, found: StepPlan) -> InfeasibleBudget | None:
    """The error for a plan whose bytes are above its budget; None when they are not."""
    for index, program in enumerate(found.plan.programs):
        if program.predictions.peak_with_workspace_bytes > program.budget_bytes:
            return _too_high(prepared, found, program, index)
    return None


def _too_high(
    prepared: PreparedStep, found: StepPlan, program: PlannedProgram, index: int
) -> InfeasibleBudget:
    predicted = program.predictions
    smallest, allowed = predicted.peak_with_workspace_bytes, program.budget_bytes
    names = _live_names(prepared, found, program, index)
    which = _which(prepared, program, index)
    return InfeasibleBudget(
        f"no plan{which} within {format_bytes(allowed)} was found; the lowest peak is {format_bytes(smallest)}",
        smallest_peak_bytes=smallest,
        lower_bound_bytes=predicted.lower_bound_bytes,
        live=names,
        plan=found.plan,
        where="live at that peak: " + ", ".join(names),
        why=_why_it_ended(program),
        next_step=f"allow that much ({smallest} bytes), or make the batch smaller",
    )


def _which(prepared: PreparedStep, program: PlannedProgram, index: int) -> str:
    """Which calls run a program, where that is not every call but the first ones."""
    captured = prepared.captured.programs[index]
    gradients, state, _ = captured.entry.names()
    is_added_to = bool(gradients) and not captured.ignores_gradients
    if index == 0 and not is_added_to:
        return ""
    begins = "with gradients" if is_added_to else "without gradients"
    if index and not state:
        begins += " and without optimizer state"
    if index == 0:
        return f" for calls that begin {begins}"
    return f" for {described_role(program.role)}, which makes state for the later ones and begins {begins},"


def _why_it_ended(program: PlannedProgram) -> str:
    ended = program.termination
    if ended.reason == TerminationReason.INFEASIBLE:
        return ended.detail
    bound = format_bytes(program.predictions.lower_bound_bytes)
    if ended.reason == TerminationReason.INTERRUPTED:
        return f"the search was interrupted; nothing is proved above {bound}"
    if ended.limit is not None:
        return f"the search came to its {ended.limit} limit; nothing is proved above {bound}"
    return f"no further change helps; nothing is proved above {bound}"


def _live_names(
    prepared: PreparedStep, found: StepPlan, program: PlannedProgram, index: int
) -> tuple[str, ...]:
    planned = found.variant.graphs[index]
    live = live_rows(step_profile(prepared, planned), prepared.user_names(index, planned.graph))
    names = tuple(f"{a.name} ({a.kind}, {format_bytes(a.nbytes)})" for a in live[:_NAMED_LIVE])
    saved = program.predictions.saved_bytes
    return (*names, f"copies of an atomic step ({format_bytes(saved)})") if saved else names

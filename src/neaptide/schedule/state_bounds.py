"""Bounds on the peak of schedules that have state of the caller on the host: within a step, or between two steps as well."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.ir.schedule import HostStay
from neaptide.schedule.problem import StepProblem


def lower_bound_with_state_between(step: StepProblem) -> int:
    """No schedule has a lower peak with workspace, whatever of the step's state is on the host between two runs.

    What no node can do without: the storages that it touches and its workspace, beside what never leaves. O(uses).
    """
    touched = list(step.workspace)
    for storage, roles in enumerate(step.roles):
        for node in roles:
            touched[node] += step.moved_bytes(storage)
    return step.resident_bytes - sum(step.state_bytes) + max(touched, default=0)


def least_with_stays(step: StepProblem, bound_bytes: int, stays: Sequence[HostStay]) -> int:
    """What is left of a bound on schedules without stays, for those with stays of the kinds that there are among some."""
    if any(stay.begins_before or stay.ends_behind for stay in stays):
        return min(bound_bytes, lower_bound_with_state_between(step))
    if any(step.state_bytes[stay.storage] for stay in stays):
        return step.least_with_state_away(bound_bytes)
    return bound_bytes

"""Seconds of a schedule with transfers: one compute stream and one copy engine each way.

Operations run one behind the other. A copy begins when its step is reached, and when its engine has done the copies
issued before it; a `WAIT` holds the compute stream until its copy has ended. Two FIFO copy engines beside the compute
stream are what POFO (Beaumont et al., NeurIPS 2021) and Capuchin (Peng et al., ASPLOS 2020) assume.
"""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.cost.devices import DISK_BYTES_PER_S, Device, Link
from neaptide.errors import UsageError
from neaptide.ir.schedule import Schedule, StepKind
from neaptide.schedule.loop_copies import Busy
from neaptide.schedule.problem import StepProblem


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a storage instance.

    Attributes:
        issued_s: when the compute stream reaches its step.
        start_s: when its engine begins it.
    """

    storage: int
    occurrence: int
    kind: StepKind
    issued_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """When everything happens, in seconds from the begin of the schedule.

    Attributes:
        starts_s: of each step that runs a node.
        exposed_s: part of `seconds` in which the compute stream waits for copies.
        waits: begin and end of each of these waits, in running order.
    """

    starts_s: tuple[float, ...]
    copies: tuple[Copy, ...]
    seconds: float
    exposed_s: float
    waits: tuple[tuple[float, float], ...] = ()


def copy_links(device: Device) -> tuple[Link, Link]:
    """The copy engines of a device from its main memory to where storages wait, and back.

    They wait on the host; those of a CPU wait in a file, whose copies are held to a rate.

    Raises:
        UsageError: it has none.
    """
    found = copy_links_if_any(device)
    if found is None:
        name, slow = device.main_space.name, device.slow_space
        raise UsageError(
            f"nothing can be stored on the host with device {device.name!r}",
            why=f"it has no link from {name!r} to {slow!r} and back",
            next_step="take a device with links, or add them to its file",
        )
    return found


def copy_links_if_any(device: Device) -> tuple[Link, Link] | None:
    """What `copy_links` gives; None where there are none."""
    name, slow = device.main_space.name, device.slow_space
    if device.kind == "cpu" and device.link(name, slow) is None:
        device = device.with_disk(DISK_BYTES_PER_S)
    out, back = device.link(name, slow), device.link(slow, name)
    return None if out is None or back is None else (out, back)


def simulate_timeline(step: StepProblem, schedule: Schedule, out: Link, back: Link) -> Timeline:
    """Play the seconds of a legal schedule. O(steps).

    A loop that moves storages has `step.body_copies`. Its copies queue behind those that are under way when it begins; by
    how much longer it takes than alone is told as a wait at its begin.
    """
    now = exposed = 0.0
    free = {StepKind.STORE: 0.0, StepKind.LOAD: 0.0}
    links = {StepKind.STORE: out, StepKind.LOAD: back}
    under_way: dict[tuple[int, int], float] = {}
    starts: list[float] = []
    copies: list[Copy] = []
    waits: list[tuple[float, float]] = []
    for one in schedule.steps:
        key = (one.target, one.occurrence)
        if one.runs_node:
            starts.append(now)
            begin = now
            now += (step.repeat_seconds if one.occurrence else step.seconds)[one.target]
            if one.target in step.body_copies:
                inside = step.body_copies[one.target]
                played = inside.play(Busy(*(max(free[way] - begin, 0.0) for way in links)))
                if longer := played.waited_s - inside.alone.waited_s:
                    waits.append((begin, begin + longer))
                exposed += longer
                now += longer
                free = dict(zip(links, (now + left for left in played.busy), strict=True))
        elif one.kind is StepKind.WAIT:
            waited = max(under_way.pop(key) - now, 0.0)
            if waited:
                waits.append((now, now + waited))
            exposed += waited
            now += waited
        elif one.kind in links:
            start = max(now, free[one.kind])
            end = start + links[one.kind].seconds(step.moved_bytes(one.target))
            free[one.kind] = under_way[key] = end
            copies.append(Copy(*key, one.kind, now, start, end))
    return Timeline(tuple(starts), tuple(copies), now, exposed, tuple(waits))

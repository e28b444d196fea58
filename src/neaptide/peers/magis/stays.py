"""Stays of tensors on the host: when copies begin, when bytes are gone, and how long operations wait for copies.

Chen et al., MAGIS (ASPLOS 2024), section 5.3: a tensor is stored as early as it can be, and loaded as late as just hides the
copy. There is one copy engine. It does copies in the order in which they are issued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.peers.magis.seconds import CALL_S, LINK_BYTES_PER_S


@dataclass(frozen=True, slots=True)
class Stay:
    """A stay on the host.

    Attributes:
        instance: its number among those of the schedule.
        tensor: which one.
        store_behind: step behind which the copy to the host is issued.
        gone_behind: step behind which the bytes on the device are gone; the next step waits for the copy.
        load_before: step before which the copy back is issued, and from which on there are bytes on the device.
        needed: step that waits for that copy.
        copy_s: seconds of one copy.
    """

    instance: int
    tensor: int
    store_behind: int
    gone_behind: int
    load_before: int
    needed: int
    copy_s: float


def stay_between(
    instance: int, tensor: int, nbytes: int, before: int, needed: int, starts: Sequence[float]
) -> Stay | None:
    """The stay between two steps that use a tensor, or make and use it; None where the copies leave no step in between.

    Args:
        instance: number of the tensor.
        tensor: which one.
        nbytes: of it.
        before: the last step that needs it before.
        needed: the step that needs it next.
        starts: when each step begins if nothing waits, and when the last one ends.
    """
    copy_s = CALL_S + nbytes / LINK_BYTES_PER_S
    stored = starts[before + 1] + copy_s
    gone = next((p for p in range(before, needed) if starts[p + 1] >= stored), needed)
    load = next((p for p in range(needed, before, -1) if starts[p] <= starts[needed] - copy_s), before)
    return Stay(instance, tensor, before, gone, load, needed, copy_s) if gone + 1 < load else None


def seconds_with_copies(starts: Sequence[float], stays: Sequence[Stay]) -> float:
    """Seconds of all steps, those that they wait for copies included. O(steps + stays).

    In front of a step stores are issued, what is to be gone by then is waited for, loads are issued, and what the step needs
    is waited for, in this order.

    Args:
        starts: when each step begins if nothing waits, and when the last one ends.
        stays: in the order in which copies for one step are issued.
    """
    stores: dict[int, list[Stay]] = {}
    gone: dict[int, list[Stay]] = {}
    loads: dict[int, list[Stay]] = {}
    needed: dict[int, list[Stay]] = {}
    for stay in stays:
        stores.setdefault(stay.store_behind + 1, []).append(stay)
        gone.setdefault(stay.gone_behind + 1, []).append(stay)
        loads.setdefault(stay.load_before, []).append(stay)
        needed.setdefault(stay.needed, []).append(stay)
    stored: dict[int, float] = {}
    loaded: dict[int, float] = {}
    now = free = 0.0
    for position in range(len(starts)):
        for issued, waited, done in ((stores, gone, stored), (loads, needed, loaded)):
            for stay in issued.get(position, ()):
                free = done[stay.instance] = max(free, now) + stay.copy_s
            for stay in waited.get(position, ()):
                now = max(now, done[stay.instance])
        if position + 1 < len(starts):
            now += starts[position + 1] - starts[position]
    return now

"""Offloads of tensors on the host: when copies begin, when bytes are gone, and how long operations wait for copies.

Chen et al., MAGIS (ASPLOS 2024), section 5.3: a tensor is stored as early as it can be, and loaded as late as just hides the
copy. Copies of one engine are done in the order in which they are issued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neaptide.cost.devices import Link


@dataclass(frozen=True, slots=True)
class Copying:
    """What may wait on the host, and what the copies take.

    Attributes:
        movable: tensors that may wait there.
        out: the link to the host.
        back: the link from it.
        has_one_engine: whether copies of both links wait for one another.
        nbytes: that tensors may take on the host at once; None for any number.
        borders: nodes that begin a later segment; everything is back by then.
    """

    movable: frozenset[int]
    out: Link
    back: Link
    has_one_engine: bool
    nbytes: int | None = None
    borders: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatedOffload:
    """An offload on the host.

    Attributes:
        instance: its number among those of the schedule.
        tensor: which one.
        nbytes: of it.
        store_after: step after which the copy to the host is issued.
        gone_after: step after which the bytes on the device are gone; the next step waits for the copy.
        load_before: step before which the copy back is issued, and from which on there are bytes on the device.
        needed: step that waits for that copy.
        store_s: seconds of the copy to the host.
        load_s: seconds of the copy back.
    """

    instance: int
    tensor: int
    nbytes: int
    store_after: int
    gone_after: int
    load_before: int
    needed: int
    store_s: float
    load_s: float


def offload_between(
    instance: int,
    tensor: int,
    nbytes: int,
    before: int,
    needed: int,
    starts: Sequence[float],
    out: Link,
    back: Link,
) -> SimulatedOffload | None:
    """The stay between two steps that use a tensor, or make and use it; None where the copies leave no step in between.

    Args:
        instance: number of the tensor.
        tensor: which one.
        nbytes: of it.
        before: the last step that needs it before.
        needed: the step that needs it next.
        starts: when each step begins if nothing waits, and when the last one ends.
        out: the link to the host.
        back: the link from it.
    """
    store_s, load_s = out.seconds(nbytes), back.seconds(nbytes)
    stored = starts[before + 1] + store_s
    gone = next((p for p in range(before, needed) if starts[p + 1] >= stored), needed)
    load = next((p for p in range(needed, before, -1) if starts[p] + load_s <= starts[needed]), before)
    if gone + 1 >= load:
        return None
    return SimulatedOffload(instance, tensor, nbytes, before, gone, load, needed, store_s, load_s)


def seconds_with_copies(
    starts: Sequence[float], offloads: Sequence[SimulatedOffload], *, has_one_engine: bool
) -> float:
    """Seconds of all steps, those that they wait for copies included. O(steps + offloads).

    In front of a step stores are issued, what is to be gone by then is waited for, loads are issued, and what the step needs
    is waited for, in this order. Two engines are those of the planner: copies for one step are issued as
    `Schedule.with_stays` issues them.

    Args:
        starts: when each step begins if nothing waits, and when the last one ends.
        stays: in the order in which one engine is given copies for one step.
        has_one_engine: whether copies to the host and back wait for one another.
    """
    stores: dict[int, list[SimulatedOffload]] = {}
    gone: dict[int, list[SimulatedOffload]] = {}
    loads: dict[int, list[SimulatedOffload]] = {}
    needed: dict[int, list[SimulatedOffload]] = {}
    if not has_one_engine:
        offloads = sorted(
            offloads, key=lambda offload: (offload.store_after, offload.tensor, offload.instance)
        )
    for offload in offloads:
        stores.setdefault(offload.store_after + 1, []).append(offload)
        gone.setdefault(offload.gone_after + 1, []).append(offload)
        needed.setdefault(offload.needed, []).append(offload)
    for offload in offloads if has_one_engine else sorted(offloads, key=lambda offload: offload.needed):
        loads.setdefault(offload.load_before, []).append(offload)
    stored: dict[int, float] = {}
    loaded: dict[int, float] = {}
    now = out_free = back_free = 0.0
    for position in range(len(starts)):
        for offload in stores.get(position, ()):
            out_free = stored[offload.instance] = max(out_free, now) + offload.store_s
        if has_one_engine:
            back_free = max(back_free, out_free)
        for offload in gone.get(position, ()):
            now = max(now, stored[offload.instance])
        for offload in loads.get(position, ()):
            back_free = loaded[offload.instance] = max(back_free, now) + offload.load_s
        if has_one_engine:
            out_free = max(out_free, back_free)
        for offload in needed.get(position, ()):
            now = max(now, loaded[offload.instance])
        if position + 1 < len(starts):
            now += starts[position + 1] - starts[position]
    return now

"""Bytes below which no plan gets, however much it recomputes.

There are two arguments, and the larger answer counts. First, when a node runs for the first time, its operands are
there, what it makes, and all that cannot be recomputed and is still needed. Second, all outputs are there at the end.
Order them by when they are made for good: each is made beside all those before it, and beside its own operands. The
order with the lowest peak is that of falling operands, as exchanging neighbours shows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from neaptide.outcome import LimitGuard
from neaptide.planner.recompute.bounds.joint_program import JointProgram
from neaptide.planner.recompute.bounds.step_tables import StepTables, far_apart
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.evaluate import Ints
from neaptide.schedule.problem import StepProblem

_POSITIONS: Final = 4  # that are looked at


def floor_bound(tables: StepTables, lowest: int, guard: LimitGuard | None = None) -> int:
    """No plan with this order of first executions has a peak below this. O(size + a few linear programs).

    Some plan has the peak `lowest`: where the bound meets it, nothing more is to be proved.
    """
    step = tables.step
    pinned = pinned_bytes(tables)
    best = min(max(step.lower_bound_bytes, outputs_bound(step), int(pinned.max(initial=0))), lowest)
    if not any(step.refusals):
        # Whatever is not an operand may be gone: the program knows no more than the sum.
        return best
    for position in far_apart(np.argsort(-pinned, kind="stable").tolist(), _POSITIONS):
        high = lowest
        # What is held must be more than what is refuted; the first question is whether anything is to be won.
        middle = best
        while best < lowest and (guard is None or guard.check_now() is None):
            if JointProgram(tables, (position,), middle).relax().is_infeasible:
                best = middle + 1
            else:
                high = middle
            if high - best <= SETTINGS.floor_progress * lowest:
                break
            middle = (best + high) // 2
    return best


def pinned_bytes(tables: StepTables) -> Ints:
    """By position, bytes that are there for sure: what the node touches, and what cannot be recomputed. O(size)."""
    count = len(tables.order)
    if not count:
        return np.zeros(0, dtype=np.int64)
    created = tables.creator >= 0
    is_stuck = created & ~tables.may_repeat[tables.creator]
    # From where on a storage cannot be recomputed: after its creator, or the first of its writers, that may not run
    # twice. A writer's work is not missed by views, which see it only for those who read them.
    stuck = np.where(is_stuck, tables.position[tables.creator], count)
    writers, written = tables.write
    refused = ~tables.may_repeat[writers] & ~is_stuck[written]
    np.minimum.at(stuck, written[refused], tables.position[writers[refused]])
    nodes, storages = tables.need
    last = np.where(tables.is_output, count - 1, -1)
    misses = is_stuck[storages]
    np.maximum.at(last, storages[misses], tables.position[nodes[misses]])
    np.maximum.at(last, tables.touch[1], tables.position[tables.touch[0]])
    crossing = (last > stuck) & created
    change = np.zeros(count + 1, dtype=np.int64)
    np.add.at(change, stuck[crossing] + 1, tables.sizes[crossing])
    np.add.at(change, last[crossing] + 1, -tables.sizes[crossing])
    found: Ints = np.cumsum(change[:-1]) + tables.fixed_bytes[tables.order]
    place = tables.position[nodes]
    loose = created[storages] & ((stuck[storages] >= place) | (last[storages] < place))
    # What the node itself creates is among its outputs.
    loose &= tables.creator[storages] != nodes
    np.add.at(found, place[loose], tables.sizes[storages[loose]])
    return found


def outputs_bound(step: StepProblem) -> int:
    """Bytes while the outputs are made, in the kindest order; the same for every order of the nodes. O(n log n)."""
    outputs = {s for v in step.outputs if (s := step.value_storage[v]) >= 0 and step.creator[s] >= 0}
    by_creator: dict[int, int] = {}
    for storage in outputs:
        creator = step.creator[storage]
        by_creator[creator] = by_creator.get(creator, 0) + step.storage_bytes[storage]
    beside: list[tuple[int, int]] = []
    for creator, kept in by_creator.items():
        made = sum(step.storage_bytes[s] for s in step.created[creator])
        read = {s for v in step.operands[creator] if (s := step.value_storage[v]) >= 0}
        read -= {*outputs, *step.created[creator]}
        needed = made + step.workspace[creator] + sum(step.storage_bytes[s] for s in read)
        beside.append((needed - kept, kept))
    there = most = step.persistent_bytes
    for extra, kept in sorted(beside, reverse=True):
        there += kept
        most = max(most, there + extra)
    return most

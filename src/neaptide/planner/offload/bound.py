"""A lower bound on the time of plans that recompute and store, in one order of first executions.

Look at the moment when node p runs for the first time. A storage that was made before and is needed at p or later is held
across p, or waits on the host, or its maker runs again later; a maker that runs again finds its operands in one of these
three ways. What is held fits beside what p makes and its scratch bytes. What waits has been copied since it was made, and
is copied back, behind p and before its next use; so each engine has work within windows of time, which waiting and
repetitions before p, or behind it, make longer. The least seconds of these, in fractions, bound every plan from below.
It is the bound of `recompute.bounds.certificate` for one step with a third way, priced by what the engines cannot hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from neaptide.linear.sparse_program import SparseProgram
from neaptide.planner.offload.host import HostSpace
from neaptide.planner.offload.settings import SETTINGS
from neaptide.planner.recompute.units import storages_needed
from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.instances import OWNED, TO_END
from neaptide.schedule.problem import StepProblem
from neaptide.schedule.timeline import OffloadClock

# Seconds that an answer may add before p, and behind it, as multiples of all operations and copies.
_MOST: Final = 1e3


def offload_bound(
    step: StepProblem,
    budget_bytes: int,
    host: HostSpace,
    order: Sequence[int],
    *,
    time_s: float | None = None,
) -> float:
    """Seconds that no plan with this order of first executions is below; infinite where no plan fits.

    O(a few linear programs with three variables for each storage made before a step).

    Args:
        step: the program.
        budget_bytes: highest bytes on the device, workspace included.
        host: room there, and links.
        order: of first executions.
        time_s: of the solver, for each program.
    """
    evaluator = Evaluator(step, order)
    profile = evaluator.bytes
    high = np.flatnonzero(profile > budget_bytes)
    if not len(high):
        return step.baseline_seconds
    spread = np.linspace(0, len(high) - 1, SETTINGS.bound_steps).astype(np.int64)
    positions = {int(profile.argmax()), *high[spread].tolist()}
    clock = OffloadClock.of(evaluator, host.out, host.back)
    added = max(
        _Step(evaluator, host, clock, p).added_seconds(budget_bytes, time_s) for p in sorted(positions)
    )
    return step.baseline_seconds + added


class _Step:
    """What the first execution at one position leaves open: how each storage that is there before it comes by."""

    def __init__(self, evaluator: Evaluator, host: HostSpace, clock: OffloadClock, position: int) -> None:
        step = evaluator.problem
        self.step, self.host, self.clock, self.position = step, host, clock, position
        places = evaluator.places
        here = int(evaluator.order[position])
        self.storages = [
            s for s, c in enumerate(step.creator) if c >= 0 and places[c] < position and step.created[c]
        ]
        self.made = [places[step.creator[s]] for s in self.storages]
        # The state of the step is there when it begins, and may leave behind the first operation.
        self.state = [s for s in host.movable(step) if step.state_bytes[s]]
        self.storages += self.state
        self.made += [0] * len(self.state)
        count = len(evaluator.order)
        self.next_use: list[int] = []
        self.is_touched: list[bool] = []
        for storage in self.storages:
            later = [places[n] for n in step.roles[storage] if places[n] >= position]
            is_state = step.state_bytes[storage] > 0
            is_kept = is_state or evaluator.spans[storage][-1][1] == TO_END
            self.next_use.append(min(later, default=count if is_kept else -1))
            self.is_touched.append(here in step.roles[storage] or (is_state and not position))
        own = sum(step.storage_bytes[s] for s in step.created[here])
        stuck_bytes = step.resident_bytes - sum(step.state_bytes[s] for s in self.state)
        self.fixed_bytes = stuck_bytes + step.workspace[here] + own

    def added_seconds(self, budget_bytes: int, time_s: float | None) -> float:
        """Least seconds that any plan adds; infinite where nothing fits."""
        step, count = self.step, len(self.storages)
        program = SparseProgram()
        every = np.ones(count, dtype=bool)
        held, away = program.variables(every), program.variables(every)
        creators = sorted({c for s in self.storages if (c := step.creator[s]) >= 0})
        again_of = dict(
            zip(creators, program.variables(np.ones(len(creators), dtype=bool)).tolist(), strict=True)
        )
        before, behind = program.variables(np.ones(2, dtype=bool)).tolist()
        number = {storage: k for k, storage in enumerate(self.storages)}
        used = np.flatnonzero(np.array(self.next_use) >= 0)
        again = np.array([again_of.get(step.creator[s], -1) for s in self.storages], dtype=np.int64)
        made = np.flatnonzero(again[used] >= 0)
        every = np.arange(len(used))
        program.add_entries(
            np.concatenate((every, every, made)),
            np.concatenate((held[used], away[used], again[used][made])),
            -np.ones(2 * len(used) + len(made)),
            -np.ones(len(used)),
        )
        pairs = [
            (again_of[creator], number[storage])
            for creator in creators
            for storage in storages_needed(step, creator)
            if storage in number and step.creator[storage] not in (creator, OWNED)
        ]
        reader, operand = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        program.add_rows(
            [(reader, 1.0), (held[operand], -1.0), (away[operand], -1.0), (again[operand], -1.0)], 0.0
        )
        nbytes = np.array([step.moved_bytes(s) for s in self.storages], dtype=np.float64)
        scale = float(max(budget_bytes, 1))
        program.add_row(held, nbytes / scale, (budget_bytes - self.fixed_bytes) / scale)
        program.add_row(away, nbytes / scale, self.host.nbytes / scale)
        seconds = np.array([step.repeat_seconds[c] for c in creators])
        unit = max(step.baseline_seconds, 1e-30)
        repeated = np.array([again_of[c] for c in creators], dtype=np.int64)
        program.add_row(np.append(repeated, behind), np.append(seconds / unit, -1.0), 0.0)
        self._add_windows(program, away, before, behind, unit)
        low, high = np.zeros(program.size), np.ones(program.size)
        high[[before, behind]] = _MOST
        for creator, variable in again_of.items():
            high[variable] = 0.0 if step.refusals[creator] else 1.0
        for k, storage in enumerate(self.storages):
            if self.is_touched[k]:
                low[held[k]], high[away[k]] = 1.0, 0.0
            if storage in self.host.stuck:
                high[away[k]] = 0.0
        cost = np.zeros(program.size)
        cost[[before, behind]] = 1.0
        program.close(cost, low, high)
        found = program.relax(time_s)
        return float("inf") if found.is_infeasible else unit * found.bound

    def _add_windows(self, program: SparseProgram, away: Ints, before: int, behind: int, unit: float) -> None:
        """Copies to the host since a position, and copies back until one, take no longer than there is.

        Latencies are left out, because a stay may be taken in part.
        """
        begins, here = self.clock.begins_s, self.position
        made, used = np.array(self.made, dtype=np.int64), np.array(self.next_use, dtype=np.int64)
        nbytes = np.array([self.step.moved_bytes(s) for s in self.storages], dtype=np.float64)
        for since in _spread(made):
            inside = made >= since
            work = nbytes[inside] / self.host.out.bandwidth_bytes_per_s / unit
            room = (begins[here] - begins[since + 1]) / unit
            program.add_row(np.append(away[inside], before), np.append(work, -1.0), room)
        for until in _spread(used[used > here]):
            inside = (used > here) & (used <= until)
            work = nbytes[inside] / self.host.back.bandwidth_bytes_per_s / unit
            room = (begins[until] - begins[here + 1]) / unit
            program.add_row(np.append(away[inside], behind), np.append(work, -1.0), room)


def _spread(positions: Ints) -> list[int]:
    """Some positions, evenly among those that are given."""
    if not len(positions):
        return []
    sorted_ = np.sort(positions)
    return sorted(
        set(sorted_[np.linspace(0, len(sorted_) - 1, SETTINGS.bound_windows).astype(np.int64)].tolist())
    )

"""Lower bounds on the time of a plan: what recomputation must cost, whoever plans it, in one order of first executions.

Look at the moment when node p runs for the first time. A storage that was made before and is needed at p or later is
either held across p, or its maker runs again later; a node that runs again needs each of its operands held across p
or made again as well; and what is held must fit beside what p makes and its scratch bytes. The least seconds run
again under these rules, relaxed to fractions, bound every plan from below: one linear program for each p, and the
largest counts. Fractions of a problem whose only coupling row is that of the bytes
are few, so the bound is tight where one step decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from neaptide.outcome import LimitGuard
from neaptide.schedule.evaluate import Evaluator, Ints
from neaptide.schedule.problem import StepProblem

_GRID: Final = 16
_FATTEST: Final = 8
_FIRST_BACKWARD: Final = 12
# The solver's answers are right to about 1e-7 of the largest coefficient; the bound gives that much away.
_SAFETY: Final = 1e-6
_INFEASIBLE: Final = 2  # linprog's status


@dataclass(frozen=True, slots=True)
class RecomputeBound:
    """What recomputation costs at least.

    Attributes:
        seconds: no plan with this order of first executions runs shorter, recomputation included.
        node: at whose first execution that is decided; -1 when nothing has to run again.
        is_infeasible: no plan with this order of first executions is within the budget.
        programs: linear programs solved.
    """

    seconds: float
    node: int
    is_infeasible: bool
    programs: int


def recompute_bound(
    step: StepProblem,
    budget_bytes: int,
    *,
    sequence: Sequence[int] | None = None,
    guard: LimitGuard | None = None,
    thorough: bool = False,
) -> RecomputeBound:
    """The largest bound over a choice of steps. O(steps looked at x one sparse linear program of the size of the graph).

    Args:
        step: the program.
        budget_bytes: highest peak with workspace.
        sequence: whose order of first executions counts; by default program order.
        guard: its time limit ends the search early; what has been found by then holds.
        thorough: look at every step that is above the budget instead of a choice.
    """
    tables = _Tables(step, sequence)
    above = np.flatnonzero(tables.profile > budget_bytes)
    best = RecomputeBound(step.baseline_seconds, -1, is_infeasible=False, programs=0)
    if not len(above):
        return best
    tried: dict[int, float | None] = {}

    def look(position: int) -> float | None:
        if position not in tried:
            tried[position] = tables.least_seconds(position, budget_bytes)
        return tried[position]

    least = 0.0
    for position in above.tolist() if thorough else _choice(tables, above):
        if guard is not None and guard.check_now() is not None:
            break
        least, best = _better(tables, look(position), position, least, best)
        if best.is_infeasible:
            return best
    # The binding step sits among steps with other scratch bytes and outputs: climb to it.
    while not thorough and best.node >= 0:
        place = int(tables.position[best.node])
        before = best
        for position in (place - 2, place - 1, place + 1, place + 2):
            is_above = 0 <= position < len(tables.profile) and tables.profile[position] > budget_bytes
            if is_above and (guard is None or guard.check_now() is None):
                least, best = _better(tables, look(position), position, least, best)
                if best.is_infeasible:
                    return best
        if best.node == before.node:
            break
    extra = max(least - _SAFETY * max(least, float(tables.seconds.max())), 0.0)
    return RecomputeBound(step.baseline_seconds + extra, best.node, is_infeasible=False, programs=len(tried))


def _better(
    tables: _Tables, found: float | None, position: int, least: float, best: RecomputeBound
) -> tuple[float, RecomputeBound]:
    node = int(tables.order[position])
    if found is None:
        return least, RecomputeBound(np.inf, node, is_infeasible=True, programs=best.programs)
    if found > least:
        return found, RecomputeBound(found, node, is_infeasible=False, programs=best.programs)
    return least, best


def _choice(tables: _Tables, above: Ints) -> list[int]:
    """Positions to look at: an even grid, the highest ones, and where the backward begins."""
    grid = above[np.linspace(0, len(above) - 1, min(_GRID, len(above))).astype(np.int64)]
    highest = above[np.argsort(-tables.profile[above], kind="stable")[:_FATTEST]]
    phases = tables.step.phases
    first = next((k for k, node in enumerate(tables.order.tolist()) if phases[node] == "backward"), None)
    begin = [] if first is None else above[(above >= first - 1) & (above < first + _FIRST_BACKWARD)].tolist()
    return list(dict.fromkeys([*begin, *highest.tolist(), *grid.tolist()]))


class _Tables:
    """Needs of a step in flat arrays, and positions in one order of first executions."""

    def __init__(self, step: StepProblem, sequence: Sequence[int] | None) -> None:
        self.step = step
        first = range(step.node_count) if sequence is None else dict.fromkeys(sequence)
        evaluator = Evaluator(step, tuple(first))
        self.order: Ints = evaluator.order
        self.profile: Ints = evaluator.bytes
        self.position: Ints = evaluator.position[: step.node_count].copy()
        self.seconds: NDArray[np.float64] = np.array(step.repeat_seconds, dtype=np.float64)
        self.sizes: Ints = np.array(step.storage_bytes, dtype=np.int64)
        self.creator: Ints = np.array(step.creator, dtype=np.int64)
        self.may_repeat = np.array([not refusal for refusal in step.refusals], dtype=bool)
        self.need = _pairs(
            (node, step.value_storage[value]) for node, values in enumerate(step.operands) for value in values
        )
        self.repeat = _pairs((node, storage) for node, reads in enumerate(step.reads) for storage, _ in reads)
        self.write = _pairs((node, storage) for storage, nodes in enumerate(step.writers) for node in nodes)
        outputs = {step.value_storage[value] for value in step.outputs}
        self.is_output = np.array([s in outputs for s in range(len(self.sizes))], dtype=bool)
        self.created = np.zeros(step.node_count, dtype=np.int64)
        for node, storages in enumerate(step.created):
            self.created[node] = sum(step.storage_bytes[s] for s in storages)

    def least_seconds(self, position: int, budget_bytes: int) -> float | None:
        """Seconds that must run again behind a position; None when its bytes cannot be met."""
        here = int(self.order[position])
        is_before = self.position < position
        made = (self.creator >= 0) & is_before[self.creator]
        need_node, need_storage = self._among(self.need, made)
        pinned = np.zeros(len(self.sizes), dtype=bool)
        pinned[need_storage[need_node == here]] = True
        used = made & self.is_output
        used[need_storage[~is_before[need_node]]] = True
        room = budget_bytes - self.step.resident_bytes - self.step.workspace[here] - int(self.created[here])
        if not made.any():
            return 0.0 if room >= 0 else None
        # Variables: again[i] for nodes before the position, then held[s] for storages made before it.
        nodes, storages = np.flatnonzero(is_before), np.flatnonzero(made)
        again = np.full(len(is_before), -1, dtype=np.int64)
        again[nodes] = np.arange(len(nodes))
        held = np.full(len(made), -1, dtype=np.int64)
        held[storages] = len(nodes) + np.arange(len(storages))
        # A used storage is held, or its maker and its writers run again.
        makers = np.concatenate((storages[used[storages]], self._written(used, is_before)[1]))
        whose = np.concatenate((self.creator[storages[used[storages]]], self._written(used, is_before)[0]))
        # What runs again needs each operand held or made again.
        rep_node, rep_storage = self._among(self.repeat, made)
        keep = is_before[rep_node] & self.may_repeat[rep_node]
        keep &= self.creator[rep_storage] != rep_node
        rep_node, rep_storage = rep_node[keep], rep_storage[keep]
        count, more = len(makers), len(rep_node)
        rows = np.concatenate(
            (
                np.tile(np.arange(count), 2),
                np.tile(count + np.arange(more), 3),
                np.full(len(storages), count + more),
            )
        )
        columns = np.concatenate(
            (
                held[makers],
                again[whose],
                again[rep_node],
                held[rep_storage],
                again[self.creator[rep_storage]],
                held[storages],
            )
        )
        scale = float(max(self.sizes.max(initial=1), 1))
        entries = np.concatenate(
            (
                np.full(2 * count, -1.0),
                np.ones(more),
                np.full(2 * more, -1.0),
                self.sizes[storages] / scale,
            )
        )
        upper = np.concatenate((np.full(count, -1.0), np.zeros(more), [room / scale]))
        size = len(nodes) + len(storages)
        low, high = np.zeros(size), np.ones(size)
        high[again[nodes[~self.may_repeat[nodes]]]] = 0.0
        low[held[storages[pinned[storages]]]] = 1.0
        largest = float(self.seconds.max(initial=0.0)) or 1.0
        cost = np.zeros(size)
        cost[: len(nodes)] = self.seconds[nodes] / largest
        found = linprog(
            cost,
            A_ub=csr_array((entries, (rows, columns)), shape=(len(upper), size)),
            b_ub=upper,
            bounds=np.stack((low, high), axis=1),
            method="highs",
        )
        if found.status == _INFEASIBLE:
            return None
        return 0.0 if found.x is None else max(float(found.fun), 0.0) * largest

    def _among(self, pairs: tuple[Ints, Ints], made: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """The pairs whose storage is made before the position."""
        nodes, storages = pairs
        keep = made[storages]
        return nodes[keep], storages[keep]

    def _written(self, used: NDArray[np.bool_], is_before: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        nodes, storages = self.write
        keep = used[storages] & is_before[nodes]
        return nodes[keep], storages[keep]


def _pairs(pairs: Iterable[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Distinct pairs of node and storage as two arrays; host scalars have no storage."""
    found = sorted({(node, storage) for node, storage in pairs if storage >= 0})
    array = np.array(found, dtype=np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]

"""The fastest choice from a pool of repetitions: a linear program with a row of bytes for each moment that binds.

Rows of moments are added as answers break them, so that few of them are ever there. With a dear variable for bytes
above the budget there always is an answer, and its multipliers say what a byte costs at each moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from neaptide.linear.arrays import Flags, Floats
from neaptide.linear.sparse_program import SparseProgram
from neaptide.linear.tolerances import NEARLY, WHOLE_GAP
from neaptide.planner.recompute.pool.pool import Moment, RepetitionPool
from neaptide.planner.recompute.settings import SETTINGS
from neaptide.schedule.evaluate import Ints

# Seconds for as many bytes as the budget, as multiples of the baseline; and no answer is further above.
_DEAR: Final = 1e3
_ANSWERS: Final = 8  # of one program, each with rows for as many moments that the last was above at
_WHOLE_ANSWERS: Final = 2  # the same in whole numbers: dear, and what is broken by little is repaired after
_MANY_ROWS: Final = 60  # of moments; where there are more, those that do not bind are forgotten


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """An answer of the program: shares of items and stretches, and seconds of the items."""

    values: Floats
    prices: Floats  # seconds per byte by moment; all zero for an answer in whole numbers
    seconds: float
    is_within: bool  # no moment is above the budget


class RepetitionProgram:
    """The program of pools that follow each other; the moments that have bound are `watched`."""

    def __init__(self, budget_bytes: int, baseline_seconds: float) -> None:
        self.watched: set[Moment] = set()
        self._budget = budget_bytes
        self._byte_scale = float(max(budget_bytes, 1))
        self._baseline_seconds = baseline_seconds

    def relax(self, pool: RepetitionPool, time_s: float | None = None) -> PoolAnswer | None:
        """The optimum in fractions; None when the solver gives none. A few sparse linear programs, in `time_s` each."""
        answer = None
        low, high = np.zeros(len(pool.items)), np.ones(len(pool.items))
        for _ in range(_ANSWERS):
            rows = self._rows(pool)
            program, per_second = self._program(pool, rows, low, high)
            found = program.relax(time_s)
            if found.values is None or program.multipliers is None:
                return answer
            prices = np.zeros(len(pool.moments))
            multipliers = program.multipliers[program.row_count - len(rows) :]
            prices[rows] = multipliers / per_second / self._byte_scale
            answer = self._answer(pool, found.values, prices)
            if not self._watch_more(pool, answer, rows):
                break
        if len(self.watched) > _MANY_ROWS and answer is not None:
            self.watched = {pool.moments[k] for k in np.flatnonzero(answer.prices).tolist()}
        return answer

    def solve_whole(
        self, pool: RepetitionPool, fixed: Flags, chosen: Flags, *, nodes: int, time_s: float | None
    ) -> PoolAnswer | None:
        """The best found in whole numbers, in so many nodes of branch and bound for each of a few programs.

        By item, `fixed` says whether it stays as in `chosen`. None when none was found.
        """
        answer = None
        low, high = np.where(fixed, chosen, 0.0), np.where(fixed, chosen, 1.0)
        for _ in range(_WHOLE_ANSWERS):
            rows = self._rows(pool)
            program, _ = self._program(pool, rows, low, high)
            found = program.solve_whole(nodes=nodes, time_s=time_s, relative_gap=WHOLE_GAP)
            if found.values is None:
                return answer
            answer = self._answer(pool, found.values, np.zeros(len(pool.moments)))
            if answer.is_within or not self._watch_more(pool, answer, rows):
                break
        return answer

    def _rows(self, pool: RepetitionPool) -> Ints:
        """Indices of the moments that are watched."""
        wanted = self.watched
        return np.array([k for k, moment in enumerate(pool.moments) if moment in wanted], dtype=np.int64)

    def _watch_more(self, pool: RepetitionPool, answer: PoolAnswer, rows: Ints) -> bool:
        """Watch the highest moments that an answer has above the budget; whether there are any."""
        too_much = max(float(answer.values[pool.variables]), 0.0)
        above = pool.profile(answer.values) - self._budget * (1.0 + NEARLY + too_much)
        above[rows] = 0.0
        before = len(self.watched)
        for _ in range(_ANSWERS):
            worst = int(above.argmax())
            if above[worst] <= 0.0:
                break
            self.watched.add(pool.moments[worst])
            above[max(worst - SETTINGS.apart, 0) : worst + SETTINGS.apart + 1] = 0.0
        return len(self.watched) > before

    def _answer(self, pool: RepetitionPool, values: Floats, prices: Floats) -> PoolAnswer:
        seconds = float(pool.seconds @ values[: len(pool.items)])
        highest = float(pool.profile(values).max(initial=0.0))
        return PoolAnswer(values, prices, seconds, highest <= self._budget * (1.0 + NEARLY))

    def _program(
        self, pool: RepetitionPool, moments: Ints, low: Floats, high: Floats
    ) -> tuple[SparseProgram, float]:
        """Rows of implications, then of bytes at moments, with limits of items; and costs per second."""
        program = SparseProgram()
        count = len(pool.items)
        program.variables(np.ones(pool.variables, dtype=bool))
        (above,) = program.variables(np.ones(1, dtype=bool))
        terms = [(row, *term) for row, (found, _) in enumerate(pool.implications) for term in found]
        rows, signs, variables = np.array(terms, dtype=np.float64).reshape(-1, 3).T
        rights = np.array([right for _, right in pool.implications])
        program.add_entries(rows.astype(np.int64), variables.astype(np.int64), signs, rights)
        item_at = {int(moment): number for number, moment in enumerate(pool.item_moment)}
        for moment in moments.tolist():
            live = np.flatnonzero((pool.stretch_start <= moment) & (pool.stretch_end >= moment))
            item = [item_at[moment]] if moment in item_at else []
            beside = np.array([above, *item], dtype=np.int64)
            columns = np.concatenate((live + count, beside))
            nbytes = np.concatenate((pool.stretch_bytes[live], [-self._byte_scale], pool.item_bytes[item]))
            room = self._budget - float(pool.always_bytes[moment])
            program.add_row(columns, nbytes / self._byte_scale, room / self._byte_scale)
        per_second = 1.0 / (float(pool.seconds.max(initial=0.0)) or 1.0)
        cost = np.zeros(program.size)
        cost[:count] = pool.seconds * per_second
        cost[above] = _DEAR * max(self._baseline_seconds * per_second, 1.0)
        lows, highs = np.zeros(program.size), np.ones(program.size)
        lows[:count], highs[:count], highs[above] = low, high, _DEAR
        program.close(cost, lows, highs, always_in_part=[int(above)])
        return program, per_second

"""The fastest choice from a pool of repetitions: a linear program with a row of bytes for each moment that binds.

Rows of moments are added as answers break them, so that few of them are ever there. With a dear variable for bytes
above the budget there always is an answer, and its multipliers say what a byte costs at each moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from neaptide.planner.recompute.bounds.step_tables import Flags, Floats
from neaptide.planner.recompute.pool.pool import Moment, RepetitionPool
from neaptide.schedule.evaluate import Ints

# Bytes above the budget by less than this share ask for no row.
_TOLERATED: Final = 1e-4
# Rows added at once stand this many moments apart.
_APART: Final = 4
_MOST_ROWS_AT_ONCE: Final = 12
_MOST_ANSWERS: Final = 8
# In whole numbers an answer is dear, and what it breaks by little is repaired behind it.
_MOST_WHOLE_ANSWERS: Final = 2
# Without a binding multiplier rows are forgotten above this number.
_MANY_ROWS: Final = 60
# Seconds for as many bytes as the budget, as multiples of the baseline.
_DEAR: Final = 1e3
_MOST_ABOVE: Final = 1e3
_WHOLE_GAP: Final = 1e-4


@dataclass(frozen=True, slots=True)
class PoolAnswer:
    """An answer of the program.

    Attributes:
        values: shares of items and stretches.
        prices: seconds per byte by moment; all zero for an answer in whole numbers.
        seconds: of the chosen items.
        is_within: no moment is above the budget.
    """

    values: Floats
    prices: Floats
    seconds: float
    is_within: bool


class RepetitionProgram:
    """The program of pools that follow each other; the moments that have bound are remembered.

    Attributes:
        watched: those moments.
    """

    def __init__(self, budget_bytes: int, baseline_seconds: float) -> None:
        self.watched: set[Moment] = set()
        self._budget = budget_bytes
        self._baseline_seconds = baseline_seconds

    def relax(self, pool: RepetitionPool) -> PoolAnswer | None:
        """The optimum in fractions; None when the solver gives none. A few sparse linear programs."""
        answer = None
        for _ in range(_MOST_ANSWERS):
            rows = self._rows(pool)
            matrix, upper, cost, per_second = self._arrays(pool, rows)
            found = linprog(
                cost,
                A_ub=matrix,
                b_ub=upper,
                bounds=np.stack(self._limits(pool), axis=1),
                method="highs",
            )
            if found.x is None:
                return answer
            prices = np.zeros(len(pool.moments))
            multipliers = np.maximum(-np.asarray(found.ineqlin.marginals), 0.0)[len(upper) - len(rows) :]
            prices[rows] = multipliers / per_second / self._budget
            answer = self._answer(pool, found.x, prices)
            if not self._watch_more(pool, answer, rows):
                break
        if len(self.watched) > _MANY_ROWS and answer is not None:
            self.watched = {pool.moments[k] for k in np.flatnonzero(answer.prices).tolist()}
        return answer

    def solve_whole(
        self, pool: RepetitionPool, fixed: Flags, chosen: Flags, *, nodes: int, time_s: float | None
    ) -> PoolAnswer | None:
        """The best found in whole numbers; None when none was.

        Args:
            pool: to choose from.
            fixed: by item, whether it stays as in `chosen`.
            chosen: by item.
            nodes: of branch and bound, for each of a few programs.
            time_s: of the solver.
        """
        options: dict[str, float] = {"mip_rel_gap": _WHOLE_GAP, "node_limit": nodes}
        if time_s is not None:
            options["time_limit"] = max(time_s, 0.01)
        count = len(pool.items)
        whole = np.ones(pool.variables + 1)
        whole[-1] = 0.0
        answer = None
        for _ in range(_MOST_WHOLE_ANSWERS):
            rows = self._rows(pool)
            matrix, upper, cost, _ = self._arrays(pool, rows)
            low, high = self._limits(pool)
            low[:count] = np.where(fixed, chosen, 0.0)
            high[:count] = np.where(fixed, chosen, 1.0)
            found = milp(
                cost,
                constraints=LinearConstraint(matrix, -np.inf, upper),
                bounds=Bounds(low, high),
                integrality=whole,
                options=options,
            )
            if found.x is None:
                return answer
            answer = self._answer(pool, found.x, np.zeros(len(pool.moments)))
            if answer.is_within or not self._watch_more(pool, answer, rows):
                break
        return answer

    def _rows(self, pool: RepetitionPool) -> Ints:
        """Indices of the moments that are watched."""
        wanted = self.watched
        return np.array([k for k, moment in enumerate(pool.moments) if moment in wanted], dtype=np.int64)

    def _watch_more(self, pool: RepetitionPool, answer: PoolAnswer, rows: Ints) -> bool:
        """Watch the highest moments that an answer has above the budget; whether there are any."""
        above = pool.profile(answer.values) - self._budget * (
            1.0 + _TOLERATED + max(float(answer.values[-1]), 0.0)
        )
        above[rows] = 0.0
        before = len(self.watched)
        for _ in range(_MOST_ROWS_AT_ONCE):
            worst = int(above.argmax())
            if above[worst] <= 0.0:
                break
            self.watched.add(pool.moments[worst])
            above[max(worst - _APART, 0) : worst + _APART + 1] = 0.0
        return len(self.watched) > before

    def _answer(self, pool: RepetitionPool, values: Floats, prices: Floats) -> PoolAnswer:
        seconds = float(pool.seconds @ values[: len(pool.items)])
        highest = float(pool.profile(values).max(initial=0.0))
        return PoolAnswer(values, prices, seconds, highest <= self._budget * (1.0 + _TOLERATED))

    def _limits(self, pool: RepetitionPool) -> tuple[Floats, Floats]:
        low, high = np.zeros(pool.variables + 1), np.ones(pool.variables + 1)
        high[-1] = _MOST_ABOVE
        return low, high

    def _arrays(self, pool: RepetitionPool, moments: Ints) -> tuple[csr_array, Floats, Floats, float]:
        """Rows of implications and bytes, right sides, costs, and costs per second."""
        budget = float(max(self._budget, 1))
        rows: list[Ints] = []
        columns: list[Ints] = []
        entries: list[Floats] = []
        upper: list[float] = []
        parts = [(r, c, f) for r, (terms, _) in enumerate(pool.implications) for f, c in terms]
        if parts:
            flat = np.array(parts, dtype=np.float64)
            rows.append(flat[:, 0].astype(np.int64))
            columns.append(flat[:, 1].astype(np.int64))
            entries.append(flat[:, 2])
        upper.extend(right for _, right in pool.implications)
        count = len(pool.items)
        item_at = {int(moment): number for number, moment in enumerate(pool.item_moment)}
        for moment in moments.tolist():
            alive = np.flatnonzero((pool.stretch_start <= moment) & (pool.stretch_end >= moment))
            terms: list[Iterable[float]] = [alive + count, [pool.variables]]
            factors: list[Iterable[float]] = [pool.stretch_bytes[alive] / budget, [-1.0]]
            if (item := item_at.get(moment)) is not None:
                terms.append([item])
                factors.append([pool.item_bytes[item] / budget])
            columns.append(np.concatenate([np.asarray(t, dtype=np.int64) for t in terms]))
            entries.append(np.concatenate([np.asarray(f, dtype=np.float64) for f in factors]))
            rows.append(np.full(len(columns[-1]), len(upper)))
            upper.append((self._budget - float(pool.always_bytes[moment])) / budget)
        per_second = 1.0 / (float(pool.seconds.max(initial=0.0)) or 1.0)
        cost = np.zeros(pool.variables + 1)
        cost[:count] = pool.seconds * per_second
        cost[-1] = _DEAR * max(self._baseline_seconds * per_second, 1.0)
        shape = (len(upper), pool.variables + 1)
        places = (
            np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64),
            np.concatenate(columns) if columns else np.zeros(0, dtype=np.int64),
        )
        values = np.concatenate(entries) if entries else np.zeros(0)
        return csr_array((values, places), shape=shape), np.array(upper), cost, per_second

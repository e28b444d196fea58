"""One call for each kind of program: minimise a cost under sparse rows, in fractions or partly in whole numbers.

Both go to SciPy's HiGHS, and nothing of what that prints reaches stdout. HiGHS does not listen while it runs: where
somebody may interrupt a search it runs beside (`neaptide.interruption`), and a call that is left to itself counts as one
that is out of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp
from scipy.sparse import csr_array

from neaptide.interruption import beside
from neaptide.linear.arrays import Floats
from neaptide.linear.rows import Rows
from neaptide.linear.silence import silent_c_stdout

_SOLVED: Final = 0  # the status of both interfaces
_OUT_OF_TIME: Final = 1
_INFEASIBLE: Final = 2
_LEAST_TIME_S: Final = 0.01  # with none at all HiGHS does not look at the limit


@dataclass(frozen=True, slots=True)
class LinearAnswer:
    """What the solver found.

    Attributes:
        is_solved: to the end; for whole numbers up to the gap.
        is_infeasible: nothing obeys the rows.
        values: of the variables; None when there are none.
        bound: no values cost less; None when nothing is known.
        multipliers: by row `sum <= upper` of a program in fractions that is solved, what one more unit of room saves.
    """

    is_solved: bool
    is_infeasible: bool
    values: Floats | None
    cost: float | None
    bound: float | None
    multipliers: Floats | None = None
    nodes: int = 0


def solve_fractions(
    cost: Floats,
    rows: csr_array,
    upper: Floats,
    low: Floats,
    high: Floats,
    *,
    time_s: float | None = None,
) -> LinearAnswer:
    """The optimum in fractions, by the dual simplex, where sums of `rows` are at most `upper`."""

    def solve() -> OptimizeResult:
        return linprog(
            cost,
            A_ub=rows,
            b_ub=upper,
            bounds=np.stack((low, high), axis=1),
            method="highs-ds",
            options=_options(time_s),
        )

    found = beside(solve, _out_of_time)
    is_solved = found.status == _SOLVED
    values = None if found.x is None else np.asarray(found.x, dtype=np.float64)
    multipliers = np.maximum(-np.asarray(found.ineqlin.marginals), 0.0) if is_solved else None
    optimum = float(found.fun) if is_solved else None
    return LinearAnswer(is_solved, found.status == _INFEASIBLE, values, optimum, optimum, multipliers)


def solve_mixed(
    cost: Floats,
    rows: Sequence[Rows],
    low: Floats,
    high: Floats,
    is_whole: Floats,
    *,
    relative_gap: float,
    nodes: int | None = None,
    time_s: float | None = None,
) -> LinearAnswer:
    """The optimum where variables with 1 in `is_whole` are whole numbers, by branch and bound.

    An answer within `relative_gap` of its bound is the last. The limit in `nodes` of the search tree is the same on every machine.
    """

    def solve() -> OptimizeResult:
        with silent_c_stdout():
            return milp(
                cost,
                constraints=[LinearConstraint(part, ub=upper) for part, upper in rows],
                bounds=Bounds(low, high),
                integrality=is_whole,
                options=_options(time_s, mip_rel_gap=relative_gap, node_limit=nodes),
            )

    found = beside(solve, _out_of_time)
    bound = found.get("mip_dual_bound")
    return LinearAnswer(
        found.status == _SOLVED,
        found.status == _INFEASIBLE,
        None if found.x is None else np.asarray(found.x, dtype=np.float64),
        None if found.fun is None else float(found.fun),
        None if bound is None or not np.isfinite(bound) else float(bound),
        nodes=int(found.get("mip_node_count") or 0),
    )


def _options(time_s: float | None, **others: float | None) -> dict[str, float]:
    limit_s = None if time_s is None else max(time_s, _LEAST_TIME_S)
    return {name: value for name, value in {**others, "time_limit": limit_s}.items() if value is not None}


def _out_of_time() -> OptimizeResult:
    """What SciPy answers where the time was over before anything was found."""
    return OptimizeResult(status=_OUT_OF_TIME, x=None, fun=None)

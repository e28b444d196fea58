"""Strategies by name. Each module has `solve(problem, limits, interrupt=None) -> Outcome[PlannedSequence]`."""

from __future__ import annotations

import importlib
import threading
from functools import partial
from typing import Final, Protocol

from neaptide.errors import UsageError
from neaptide.named_peers import EVICTION, STRATEGIES, peer
from neaptide.outcome import Limits, Outcome
from neaptide.planner.objective import PlannedSequence, PlanningProblem

NAMES: Final = (
    "program_order",
    "early_updates",
    "best_order",
    "greedy_recompute",
    "block_dp",
    "lagrangian",
    *STRATEGIES,
)
"""Those that make up the default portfolio, then the peers."""


class Strategy(Protocol):
    """A search for a sequence. `tests/planner/test_strategy_conformance.py` holds each name of `NAMES` to its promises.

    It always has a value, which is legal, carries its name, and ranks no worse than the sequence that it was started from (but
    `program_order` knows no other order than its own). A start that meets the budget is the answer, and is proved. A
    search without time, or that is interrupted, says so and has its start. Under the same limit of work and the same
    seed the answer is the same, and the limit is kept. No bound is above what was found. The problem stays as it is.
    """

    def __call__(
        self, problem: PlanningProblem, limits: Limits, interrupt: threading.Event | None = None
    ) -> Outcome[PlannedSequence]: ...


def canonical_name(name: str) -> str:
    """A strategy's name as it is spelled in `NAMES`; `sqrt-n` and `sqrt_n` are the same."""
    return name.replace("-", "_")


def strategy(name: str) -> Strategy:
    """The strategy of a name, in either spelling; its module is imported on first use."""
    known = canonical_name(name)
    if known not in NAMES:
        raise UsageError(f"no strategy is called {name!r}", next_step=f"choose one of {', '.join(NAMES)}")
    if known in EVICTION:
        return partial(peer("strategies", "dtr").solve_with, known)
    own = known not in STRATEGIES
    module = importlib.import_module(f"{__name__}.{known}") if own else peer("strategies", known)
    solve: Strategy = module.solve
    return solve

"""How a plan of a captured step is searched for."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from neaptide.outcome import Limits
from neaptide.planner import BITWISE, DEFAULT_STRATEGY
from neaptide.planner.budget import Budget
from neaptide.runtime.planned_graph import LeaveOut
from neaptide.transform.rewrite import Rewrite

RUNS: Final = 100
"""Of a step that is planned while it trains, for `Limits`. Such a step runs thousands of times, but a search saves a small part
of what is recomputed, not all of it."""


@dataclass(frozen=True)
class SearchOptions:
    """How a plan is searched for.

    Attributes:
        budget: what the step may use.
        strategy: `default` for the portfolio, or the name of one strategy.
        limits: time of the searches of all programs together, most of it for the steady one; work of each; seed.
        atomic: keep updates behind everything that can fail.
        interrupt: set it to get the best plan so far.
        least_bytes: allowed in any case, up to the baseline: those of an earlier plan of the same step.
        rewrites: what is done to the graphs first, one after the other: names of rules, each applied wherever it finds
            that it can be, and rewrites of the usual step.
        numerics: `close` where sums may be taken in another order, so that the graph may run in parts.
        trials: plans that are made around the limit and run, to take one by what they measured. None: one plan, by
            predictions.
        in_place: behind the search, put results on top of operands where that lowers the peak.
        leave_out: told the rule and the reason where a rewrite that is not legal in a graph is left out. None: that is
            an error.
        bodies: what the body of each loop may use, as `planner.loop_bodies.BodyPlanner.plan` means it. None: what is
            left where it runs.
        workers: processes that plan variants side by side, as `planner.variants.search.plan_variants` means it.
        explains: whether a report is made of the plan. It then tells axes.
    """

    budget: Budget
    strategy: str = DEFAULT_STRATEGY
    limits: Limits = field(default_factory=Limits)
    atomic: bool = False
    interrupt: threading.Event | None = None
    least_bytes: int = 0
    rewrites: tuple[str | Rewrite, ...] = ()
    leave_out: LeaveOut | None = None
    bodies: Budget | None = None
    numerics: str = BITWISE
    workers: int | None = None
    trials: int | None = None
    in_place: bool = True
    explains: bool = True

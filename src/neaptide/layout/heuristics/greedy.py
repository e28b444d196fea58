"""The portfolio of placement rules: all orders with both fits, then seeded restarts, until the bound is met."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from typing import Final

from neaptide.layout.bounds import arena_lower_bound, live_bytes
from neaptide.layout.heuristics.orders import ORDERS, BufferKeys, order_by, program_order
from neaptide.layout.heuristics.placement import Fit, place, place_below
from neaptide.layout.heuristics.watched import RuleStopped
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Certificate, Layout, LayoutResult, MethodResult
from neaptide.layout.validate import check_layout
from neaptide.outcome import LimitGuard, Limits, Outcome

_FIRST_RULES: Final = (
    ("size", Fit.FIRST),
    ("size", Fit.BEST),
    ("life", Fit.BEST),
    ("program", Fit.FIRST),
    ("program", Fit.BEST),
)
"""Those that meet the bound on most training graphs, one of each kind."""
PORTFOLIO: Final = (
    *_FIRST_RULES,
    *(
        rule
        for order in (*ORDERS, "program")
        for rule in ((order, Fit.FIRST), (order, Fit.BEST))
        if rule not in _FIRST_RULES
    ),
)
"""Order and fit, in the order in which they run; `program` is the order of the list among equal starts."""
_RESTARTS: Final = 64
_MOST_PLACED: Final = 100_000  # buffers placed by all restarts together, where no limit says otherwise
_PARENTS: Final = 4  # rules whose orders restarts perturb: the best ones
_LARGEST_NOISE: Final = 0.1  # of n, the spread of positions is drawn up to this


def greedy_layout(
    problem: LayoutProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    target_bytes: int | None = None,
    restarts: int = _RESTARTS,
) -> Outcome[LayoutResult]:
    """The best layout of all placement rules. Anytime: the first rule always runs to its end.

    Restarts place the orders of the best rules with a little noise in the positions, and give up as soon as they
    are no better. A unit of work is one placed buffer; under a work limit alone the answer is the same everywhere.

    Args:
        problem: the buffers.
        limits: time, work, and the seed of restarts.
        interrupt: when set, the best so far is returned.
        target_bytes: an arena that is small enough to stop at; by default only the lower bound is.
        restarts: at most so many.
    """
    return _Portfolio(problem, LimitGuard(limits or Limits(), interrupt), target_bytes or 0).run(restarts)


@dataclass(frozen=True, slots=True)
class _Tried:
    """A rule that has run."""

    arena_bytes: int
    order: list[int]
    fit: Fit


class _Portfolio:
    def __init__(self, problem: LayoutProblem, guard: LimitGuard, target_bytes: int) -> None:
        self.problem = problem
        self.guard = guard
        self.lower = arena_lower_bound(problem)
        self.target = max(self.lower, target_bytes)
        self.methods: dict[str, MethodResult] = {}
        self.tried: list[_Tried] = []

    def run(self, restarts: int) -> Outcome[LayoutResult]:
        keys = BufferKeys.of(self.problem)
        best = self._place(keys, *PORTFOLIO[0])
        self.guard.exhausted(len(self.problem))
        for name, fit in PORTFOLIO[1:]:
            if not self._goes_on(best):
                break
            try:
                layout = self._place(keys, name, fit, self.guard)
            except RuleStopped:
                return self._result(best)
            if layout.arena_bytes < best.arena_bytes:
                best = layout
        else:
            most = _MOST_PLACED // max(1, len(self.problem))
            best = self._restart(best, min(restarts, most))
        return self._result(best)

    def _result(self, best: Layout) -> Outcome[LayoutResult]:
        check_layout(self.problem, best)
        is_optimal = best.arena_bytes <= self.lower
        certificate = Certificate.MEETS_BOUND if is_optimal else Certificate.BOUND
        result = LayoutResult(
            best,
            live_bytes(self.problem),
            self.lower,
            None,
            certificate,
            0,
            self.guard.seconds(),
            self.methods,
        )
        return self.guard.finish(result, best=best.arena_bytes, bound=self.lower, detail=str(certificate))

    def _place(self, keys: BufferKeys, name: str, fit: Fit, guard: LimitGuard | None = None) -> Layout:
        before = self.guard.seconds()
        order = program_order(self.problem) if name == "program" else order_by(keys, ORDERS[name](keys))
        layout = place(self.problem, order, fit, guard)
        self.tried.append(_Tried(layout.arena_bytes, order, fit))
        self.methods[f"{name}_{fit}"] = MethodResult(layout.arena_bytes, self.guard.seconds() - before)
        return layout

    def _restart(self, best: Layout, restarts: int) -> Layout:
        """The best of noisy copies of the best orders, or what was there before."""
        parents = sorted(self.tried, key=lambda tried: tried.arena_bytes)[:_PARENTS]
        generator = random.Random(self.guard.limits.seed)  # noqa: S311 - no secrets here
        before = self.guard.seconds()
        found: int | None = None
        turn = 0
        while turn < restarts and self._goes_on(best):
            parent = parents[turn % len(parents)]
            spread = len(parent.order) * _LARGEST_NOISE * generator.random()
            noisy = sorted(
                (position + generator.gauss(0.0, spread), index)
                for position, index in enumerate(parent.order)
            )
            order = [index for _, index in noisy]
            try:
                layout = place_below(self.problem, order, parent.fit, best.arena_bytes, self.guard)
            except RuleStopped:
                break
            if layout is not None:
                best, found = layout, layout.arena_bytes
            turn += 1
        if turn:
            self.methods["restarts"] = MethodResult(found, self.guard.seconds() - before, turn)
        return best

    def _goes_on(self, best: Layout) -> bool:
        """Whether another pass is wanted and allowed; charges it."""
        if best.arena_bytes <= self.target or self.guard.check_now() is not None:
            return False
        return self.guard.exhausted(len(self.problem)) is None

"""The best layout that all methods together find, with proof where there is one."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from neaptide.errors import UsageError
from neaptide.layout.bounds import arena_lower_bound, live_bytes
from neaptide.layout.exact.component import ComponentSearch
from neaptide.layout.exact.sections import components
from neaptide.layout.exact.strip import Verdict
from neaptide.layout.placement import RULES, Rule, RuleStopped
from neaptide.layout.problem import Ints, LayoutProblem
from neaptide.layout.result import Certificate, Layout, LayoutResult, MethodResult
from neaptide.layout.validate import check_layout
from neaptide.named_peers import GRID, LAYOUTS, peer
from neaptide.named_peers import RULES as PEER_RULES
from neaptide.outcome import LimitGuard, Limits, Outcome, Termination, TerminationReason, left_out

_FIRST_RULE: Final = "size_first"
_FIRST_NODES: Final = 20_000  # of the first exact decisions; each later round has twice as many as the last
_MOST_NODES: Final = 1_000_000  # of all of them, where no limit says otherwise: about a minute
_FIRST_DECISIONS: Final = (
    3  # at the bound alone, each with a seed of its own: how long one takes has a heavy tail
)
_NARROWING_PARTS: Final = 1_000  # the search for a smaller arena ends at the bound over this


def best_layout(
    problem: LayoutProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    capacity_bytes: int | None = None,
    methods: Sequence[str] | None = None,
    start: Layout | None = None,
    without: Collection[str] = (),
) -> Outcome[LayoutResult]:
    """The smallest arena found within limits, or a layout within a capacity.

    First one placement rule and dives, which meet the bound on training graphs; then exact decisions with growing node
    limits, at the bound and, as long as that is open, between it and the best. The first rule always runs, so there always
    is a layout; whatever comes after it stops when the time is over. Under a work limit alone (a unit is a node or a
    placement) the answer is the same on every machine. `tests/layout/test_layout_method_conformance.py` holds each method.

    Args:
        limits: of time and work, and the seed; without any, exact decisions end at a million nodes.
        capacity_bytes: of the arena; None for the smallest arena.
        methods: names out of `METHODS`, or `all` of them; by default as many as it takes.
        without: stages to leave out by default, of `STAGES`, to measure what they earn.

    Returns:
        The value is always there; its layout is None when nothing was found within the capacity, which is
        `INFEASIBLE` when that is proved and `NO_SOLUTION_FOUND` when not.

    Raises:
        UsageError: for an unknown method or a negative capacity.
        VerifyError: for a start that is no layout of the problem.
        MissingExtra: `cp_sat` is asked for and not installed.
    """
    for name in methods or ():
        if name not in METHODS and name != ALL:
            raise UsageError(
                f"there is no layout method {name!r}", next_step=f"choose from {', '.join(METHODS)}, or {ALL}"
            )
    if capacity_bytes is not None and capacity_bytes < 0:
        raise UsageError(f"a capacity of {capacity_bytes} bytes cannot be meant")
    if methods is not None and ALL in methods:
        methods = METHODS
    if start is not None:
        check_layout(problem, start)
    guard = LimitGuard(limits or Limits(), interrupt)
    return _Portfolio(problem, guard, interrupt, capacity_bytes, methods, left_out(without, STAGES)).solve(
        start
    )


class _Portfolio:
    def __init__(
        self,
        problem: LayoutProblem,
        guard: LimitGuard,
        interrupt: threading.Event | None,
        capacity: int | None,
        methods: Sequence[str] | None,
        without: frozenset[str],
    ) -> None:
        self.problem = problem
        self.guard = guard
        self.interrupt = interrupt
        self.capacity = capacity
        self.wanted = methods
        self.without = without
        self.results: dict[str, MethodResult] = {}
        self.bound = self.lower = arena_lower_bound(problem)
        self.best: Layout | None = None
        self.first: Layout | None = None
        self.nodes = 0
        self.components: list[tuple[Ints, ComponentSearch]] = []

    def solve(self, start: Layout | None) -> Outcome[LayoutResult]:
        if not len(self.problem):
            self.best = Layout((), 0)
            return self._finish()
        if self.capacity is not None and self.lower > self.capacity:
            return self._finish()
        self._offer(start)
        if self.wanted is not None:
            for name in dict.fromkeys(self.wanted):
                if self._goes_on() or not self.results:
                    self._run(name)
        else:
            if self.best is None or (self._goes_on() and not self._is_done()):
                self._run(_FIRST_RULE)
            for name in STAGES:
                if name not in self.without and self._goes_on() and not self._is_done():
                    self._run(name)
        return self._finish()

    def _run(self, name: str) -> None:
        before, nodes = self.guard.seconds(), self.nodes
        if name in STAGES:
            arena = self._dive() if name == "dive" else self._valley()
        else:
            arena = self._peer(name) if name in LAYOUTS else self._rule(name)
        seconds, nodes = self.guard.seconds() - before, self.nodes - nodes
        if (old := self.results.get(name)) is not None:
            seconds, nodes = seconds + old.seconds, nodes + old.nodes
        self.results[name] = MethodResult(arena, seconds, nodes)

    def _goal(self) -> int:
        return self.lower if self.capacity is None else self.capacity

    def _is_done(self) -> bool:
        if self.best is not None and self.best.arena_bytes <= self._goal():
            return True
        return self.capacity is not None and self.lower > self.capacity

    def _goes_on(self) -> bool:
        return self.guard.check_now() is None

    def _offer(self, layout: Layout | None) -> int | None:
        """Keep a layout if it is better. Returns its arena."""
        if layout is None:
            return None
        if self.best is None or layout.arena_bytes < self.best.arena_bytes:
            self.best = layout
        return layout.arena_bytes

    def _rule(self, name: str) -> int | None:
        self.guard.exhausted(len(self.problem))
        rule: Rule = RULES[name] if name in RULES else peer("layouts", "rules").RULES[name]
        if self.first is None:
            self.first = rule(self.problem)
            self._keep_time_to_check(self.first)
            return self._offer(self.first)
        try:
            return self._offer(rule(self.problem, self.guard))
        except RuleStopped:
            return None

    def _keep_time_to_check(self, layout: Layout) -> None:
        """Stop early enough for the check of the result, which takes as long as the check of the first layout."""
        if (time_s := self.guard.limits.time_s) is not None and self._goes_on():
            before = self.guard.seconds()
            check_layout(self.problem, layout)
            used_s = self.guard.seconds() - before
            self.guard.limits = replace(self.guard.limits, time_s=max(0.0, time_s - used_s))

    def _open_components(self) -> None:
        """Make a search of every time component, once."""
        if self.components:
            return
        for members in components(self.problem):
            if len(members) == len(self.problem):
                known = self.first if _FIRST_RULE in self.results else None
                self.components.append((members, ComponentSearch(self.problem, known)))
            else:
                inside = tuple(self.problem.buffers[index] for index in members)
                self.components.append((members, ComponentSearch(LayoutProblem(inside, self.problem.name))))

    def _assemble(self) -> int | None:
        offsets = np.zeros(len(self.problem), dtype=np.int64)
        for members, search in self.components:
            offsets[members] = search.offsets
        return self._offer(Layout.of(self.problem, tuple(offsets.tolist())))

    def _dive(self) -> int | None:
        self._open_components()
        for _, search in self.components:
            search.dive(self._goal(), self.guard)
        return self._assemble()

    def _valley(self) -> int | None:
        """Decide capacities with growing node limits until the proof is there or the limits are used up."""
        self._open_components()
        most, total = _FIRST_NODES, self.nodes + _MOST_NODES
        is_limited = self.guard.limits.time_s is not None or self.guard.limits.work is not None
        arena = self._assemble()
        rounds = 0
        while not self._is_proved() and self._goes_on() and (is_limited or self.nodes < total):
            before = self.nodes
            verdict = self._decide(self._goal(), most)
            is_open = verdict is Verdict.OUT_OF_BUDGET and rounds >= _FIRST_DECISIONS
            if is_open and self.capacity is None:
                self._narrow(most)
            arena = self._assemble()
            rounds += 1
            if self.nodes == before and verdict is Verdict.OUT_OF_BUDGET:
                break  # too large for this method, not a matter of limits
            if is_open:
                most *= 2
        return arena

    def _narrow(self, most: int) -> None:
        """Look for smaller arenas between the bound and the best by bisection; what is not decided counts as too small."""
        low = self.lower
        assert self.best is not None
        while self.best.arena_bytes - low > max(1, low // _NARROWING_PARTS) and self._goes_on():
            middle = (low + self.best.arena_bytes) // 2
            verdict = self._decide(middle, most)
            if verdict is Verdict.FITS:
                self._assemble()
            else:
                low = middle

    def _decide(self, capacity: int, most: int) -> Verdict:
        """Whether the whole fits a capacity, with so many nodes for each component."""
        for _, search in self.components:
            verdict, nodes = search.decide(capacity, self.guard, max_nodes=most)
            self.nodes += nodes
            self.lower = max(self.lower, search.lower_bytes)
            if verdict is not Verdict.FITS:
                return verdict
        return Verdict.FITS

    def _is_proved(self) -> bool:
        """Whether the searches' own layouts have reached the goal; a named method does not rest on another's."""
        if self.wanted is None:
            return self._is_done()
        is_reached = all(search.arena_bytes <= self._goal() for _, search in self.components)
        return is_reached or (self.capacity is not None and self.lower > self.capacity)

    def _peer(self, name: str) -> int | None:
        limits = Limits(self.guard.remaining_s(), self.guard.limits.work, self.guard.limits.seed)
        found: Outcome[Layout] = peer("layouts", name).find_layout(
            self.problem, limits, self.interrupt, capacity_bytes=self.capacity
        )
        if found.termination.bound is not None:
            self.lower = max(self.lower, int(found.termination.bound))
        return self._offer(found.value)

    def _finish(self) -> Outcome[LayoutResult]:
        best, capacity = self.best, self.capacity
        if best is not None:
            check_layout(self.problem, best)
            self.lower = min(self.lower, best.arena_bytes)
        fits = best is not None and (capacity is None or best.arena_bytes <= capacity)
        if best is not None and fits:
            if best.arena_bytes <= self.bound:
                certificate = Certificate.MEETS_BOUND
            elif best.arena_bytes <= self.lower:
                certificate = Certificate.EXHAUSTED
            else:
                certificate = Certificate.BOUND
        elif capacity is not None and self.lower > capacity:
            certificate = Certificate.REFUTED
        else:
            certificate = Certificate.NOT_PROVED
        result = LayoutResult(
            best if fits else None,
            live_bytes(self.problem),
            self.lower,
            capacity,
            certificate,
            self.nodes,
            self.guard.seconds(),
            dict(self.results),
        )
        arena = best.arena_bytes if best is not None and fits else None
        outcome = self.guard.finish(
            result, complete=certificate.is_optimal, best=arena, bound=self.lower, detail=str(certificate)
        )
        if fits:
            return outcome
        ended = outcome.termination
        reason = ended.reason
        if certificate is Certificate.REFUTED:
            reason = TerminationReason.INFEASIBLE
        elif reason is not TerminationReason.INTERRUPTED:
            reason = TerminationReason.NO_SOLUTION_FOUND
        limit = None if certificate is Certificate.REFUTED else ended.limit
        ended = Termination(reason, limit, str(certificate), None, self.lower)
        return Outcome(result, ended, outcome.seconds, outcome.work)


STAGES: Final = ("dive", "valley")
"""What follows the first rule."""
ALL: Final = "all"
METHODS: Final[tuple[str, ...]] = (*RULES, *PEER_RULES, *GRID, "dive", "valley", *LAYOUTS)

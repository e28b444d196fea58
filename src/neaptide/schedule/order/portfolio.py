"""The best order that all methods together find, with proof where there is one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from neaptide.errors import UsageError
from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.schedule.order.beam import beam_order
from neaptide.schedule.order.bitset_lattice import Lattice
from neaptide.schedule.order.bounds import cut_bound, per_op_bound, sub_problem_bound
from neaptide.schedule.order.downsets import DownsetSearch, SearchEnd, downset_dp
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.heuristics import LIST_METHODS
from neaptide.schedule.order.hierarchical import hierarchical_order
from neaptide.schedule.order.improve import byte_steps, improve_peak, lower_second_peaks
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions import Reduced, reduce
from neaptide.schedule.order.result import Certificate, MethodResult, OrderResult

_BEAM_WIDTHS: Final = (1, 8)
_FIRST_STATES: Final = (
    256  # of the first turn of an exact search; each turn has half as many again as the last
)
_STATES_BEFORE_HIERARCHY: Final = 50_000  # of each exact search
_STATES_BEFORE_REDUCTION: Final = 10_000  # of each exact search, before large regions are tried
_LARGE_REGIONS: Final = (200_000, 2_000_000)  # downsets of one region: a second or two, and ten
_MOST_DP_STATES: Final = 300_000
_MOST_STATES: Final = (
    1_000_000  # of one search: about a gigabyte; more than that is another way of not answering
)
_MOST_SMOOTHED_OPS: Final = 5_000  # quadratic
_MOST_BITSET_OPS: Final = 30_000  # closures are quadratic in bits: 2 x 110 MB here


def best_order(
    problem: OrderProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    methods: Sequence[str] | None = None,
) -> Outcome[OrderResult]:
    """The best order found within limits; the list order is always a candidate, so it is never worse than that.

    First lists and the lazy min-cut bound: where they meet the answer is proved in milliseconds. Then, on what exact
    reductions leave: windows around the peak, beams in both directions, exact searches over downsets forwards and
    reversed in turn, with the bound of certified sub-problems between them, and the hierarchical method. Under a work limit alone (a unit is a
    state or a cut) the answer is the same on every machine.

    Args:
        problem: storages and ops.
        limits: of time and work; without any, exact searches end at a million states each.
        interrupt: when set, the best so far is returned.
        methods: names out of `METHODS`, or `all` of them; by default as many as it takes. The list order is always
            there.

    Raises:
        UsageError: for an unknown method.
    """
    if methods is not None and ALL in methods:
        methods = METHODS
    return _Portfolio(problem, LimitGuard(limits or Limits(), interrupt), interrupt, methods).solve()


class _Portfolio:
    def __init__(
        self,
        problem: OrderProblem,
        guard: LimitGuard,
        interrupt: threading.Event | None,
        methods: Sequence[str] | None,
    ) -> None:
        for name in methods or ():
            if name not in METHODS:
                raise UsageError(
                    f"there is no ordering method {name!r}",
                    next_step=f"choose from {', '.join(METHODS)}, or {ALL}",
                )
        self.problem = problem
        self.guard = guard
        self.interrupt = interrupt
        self.wanted = methods
        self.results: dict[str, MethodResult] = {}
        self.order = tuple(range(problem.op_count))
        self.peak = evaluate_order(problem, self.order).peak_bytes
        self.steps = byte_steps(problem, self.order)
        self.lower = per_op_bound(problem)
        self.exhausted = False
        # What is searched: the problem itself, or what exact reductions leave of it; with an order of that.
        self.core = problem
        self.core_order = self.order
        self.reduced: Reduced | None = None
        self.lattices: dict[bool, Lattice] = {}
        self.searches: list[DownsetSearch] = []
        self.has_sub_problem_bound = False

    def solve(self) -> Outcome[OrderResult]:
        for name, method in LIST_METHODS.items():
            if name == "program_order" or (self._wants(name) and self._goes_on()):
                self._try(name, partial(method, self.problem))
        self._cut_bound()
        # Named methods are compared as they are, on the problem as it is.
        is_due = not self._is_proved() if self.wanted is None else "reduction" in self.wanted
        if is_due and self._goes_on():
            self._reduce()
            self._cut_bound()
        searches: tuple[tuple[str, Callable[[], None]], ...] = (
            ("windows", self._windows),
            ("beam", self._beams),
            ("serenity_dp", self._serenity),
            ("exact", lambda: self._exact(_STATES_BEFORE_REDUCTION)),
            ("reduction", lambda: self._reduce_again(_LARGE_REGIONS[0])),
            ("exact", lambda: self._exact(_STATES_BEFORE_HIERARCHY)),
            ("hierarchical", self._hierarchical),
            ("reduction", lambda: self._reduce_again(_LARGE_REGIONS[1])),
            ("exact", lambda: self._exact(_MOST_STATES)),
        )
        for name, search in searches:
            # Serenity's program is here as a peer to compare with, and runs only when asked for.
            if self.wanted is None:
                is_due = name != "serenity_dp" and not self._is_proved()
            else:
                is_due = name in self.wanted and name != "reduction"
            if is_due and self._goes_on() and self.core.op_count <= _MOST_BITSET_OPS:
                search()
        if self.wanted is None and self._goes_on() and self.problem.op_count <= _MOST_SMOOTHED_OPS:
            smooth = lower_second_peaks(self.problem, self.order, guard=self.guard)
            self._offer(smooth, is_core=False)
        return self._finish()

    def _cut_bound(self) -> None:
        if self.peak > self.lower and self._goes_on() and self.core.op_count <= _MOST_BITSET_OPS:
            inner = self._share()
            bound = cut_bound(self.core, self.core_order, floor=self.lower, guard=inner)
            self.guard.exhausted(inner.work)
            self.lower = max(self.lower, bound.nbytes)

    def _reduce(self) -> None:
        """Put exact reductions between the problem and the searches, and the best list order of what is left."""
        before, work = self.guard.seconds(), self.guard.work
        reduced = reduce(self.problem, self._share().limits)
        self.guard.exhausted(reduced.stats.states)
        self._note("reduction", self._adopt(reduced), before, work)

    def _reduce_again(self, region_states: int) -> None:
        """Reduce what is left with a higher limit for one region, where the last reduction gave up on one."""
        old = self.reduced
        if old is None or not old.stats.skipped:
            return
        before, work = self.guard.seconds(), self.guard.work
        again = reduce(self.core, self._share().limits, region_states=region_states)
        self.guard.exhausted(again.stats.states)
        peak = None
        if again.problem.op_count < self.core.op_count:
            peak = self._adopt(replace(again, contents=tuple(map(old.expand, again.contents))))
            # What the searches and the bound know is about the old core.
            self.lattices.clear()
            self.searches.clear()
            self.has_sub_problem_bound = False
            self._cut_bound()
        self._note("reduction", peak, before, work)

    def _adopt(self, reduced: Reduced) -> int | None:
        """Take the best list order of a reduced problem, and search that from now on. Returns its peak."""
        orders = [method(reduced.problem) for method in LIST_METHODS.values()]
        best = min(orders, key=lambda order: evaluate_order(reduced.problem, order).peak_bytes)
        if self.wanted is None:
            self.core, self.core_order, self.reduced = reduced.problem, best, reduced
        self.exhausted = self.exhausted or reduced.is_solved  # there is no other order
        return self._offer(reduced.expand(best), is_core=False)

    def _wants(self, name: str) -> bool:
        return self.wanted is None or name in self.wanted

    def _goes_on(self) -> bool:
        return self.guard.exhausted(0) is None and self.guard.check_now() is None

    def _is_proved(self) -> bool:
        return self.exhausted or self.peak <= self.lower

    def _lattice(self, reverse: bool) -> Lattice:
        if reverse not in self.lattices:
            self.lattices[reverse] = Lattice(self.core, reverse=reverse)
        return self.lattices[reverse]

    def _offer(self, order: tuple[int, ...] | None, *, is_core: bool = True) -> int | None:
        """Keep an order if it is better: by peak, then by byte-steps. Returns its peak.

        Args:
            order: of the core, or of the problem.
            is_core: which of the two.
        """
        if order is None:
            return None
        if is_core:
            if (
                evaluate_order(self.core, order).peak_bytes
                < evaluate_order(self.core, self.core_order).peak_bytes
            ):
                self.core_order = order
            if self.reduced is not None:
                order = self.reduced.expand(order)
        peak = evaluate_order(self.problem, order).peak_bytes
        if peak <= self.peak:
            steps = byte_steps(self.problem, order)
            if (peak, steps) < (self.peak, self.steps):
                self.order, self.peak, self.steps = order, peak, steps
        return peak

    def _try(
        self, name: str, method: Callable[[], tuple[int, ...] | None], inner: LimitGuard | None = None
    ) -> None:
        """Run a method; what it has used of its own limits is charged to the whole."""
        before, work = self.guard.seconds(), self.guard.work
        used = inner.work if inner is not None else 0
        peak = self._offer(method())
        if inner is not None:
            self.guard.exhausted(inner.work - used)
        self._note(name, peak, before, work)

    def _note(self, name: str, peak: int | None, before: float, work: int) -> None:
        old = self.results.get(name)
        known = [p for p in (peak, old.peak_bytes if old else None) if p is not None]
        self.results[name] = MethodResult(
            min(known) if known else None,
            self.guard.seconds() - before + (old.seconds if old else 0.0),
            self.guard.work - work + (old.states if old else 0),
        )

    def _beams(self) -> None:
        inner = self._share()
        before = self.peak
        for width in _BEAM_WIDTHS:
            for reverse in (False, True):
                is_enough = self._is_proved() and (self.wanted is None or "beam" in self.results)
                if is_enough or inner.check_now() is not None:
                    break
                beam = partial(
                    beam_order,
                    self._lattice(reverse),
                    width,
                    level=self.lower,
                    upper_bytes=self.peak if self.wanted is None else self.peak + 1,
                    guard=inner,
                )
                self._try("beam", beam, inner)
        if self.wanted is None and self.peak < before and not self._is_proved() and self._goes_on():
            self._windows()

    def _windows(self) -> None:
        inner = self._share()
        improve = partial(improve_peak, self.core, self.core_order, guard=inner, lower_bytes=self.lower)
        self._try("windows", improve, inner)

    def _hierarchical(self) -> None:
        inner = self._share()
        rounds: list[int] = []

        def run() -> tuple[int, ...]:
            found = hierarchical_order(self.core, guard=inner, lower_bytes=self.lower)
            rounds.extend(entry.peak_bytes for entry in found.rounds)
            return found.order

        self._try("hierarchical", run, inner)
        self.results["hierarchical"] = replace(self.results["hierarchical"], rounds=tuple(rounds))

    def _serenity(self) -> None:
        inner = self._share(_MOST_DP_STATES)
        self._try("serenity_dp", partial(downset_dp, self.core, inner), inner)

    def _share(self, most_work: int | None = None) -> LimitGuard:
        """Limits for a method that others come after: half of what is left of each."""
        time_left, work_left = self.guard.remaining_s(), None
        if self.guard.limits.work is not None:
            work_left = (self.guard.limits.work - self.guard.work) // 2
        works = [work for work in (work_left, most_work) if work is not None]
        return LimitGuard(
            Limits(
                time_s=None if time_left is None else time_left / 2,
                work=min(works) if works else None,
                seed=self.guard.limits.seed,
            ),
            self.interrupt,
        )

    def _exact(self, most_states: int) -> None:
        """Forwards and reversed in turn, each continuing where it stopped."""
        # A named method runs though another has the proof already.
        if self.exhausted and (self.wanted is None or "exact" in self.results):
            return
        before, work = self.guard.seconds(), self.guard.work
        done = False
        if not self.searches:
            # Alone, the method has to come up with an order of its own; else only a better one is of use.
            upper = self.peak if self.wanted is None else self.peak + 1
            self.searches = [
                DownsetSearch(self._lattice(reverse), lower_bytes=self.lower, upper_bytes=upper)
                for reverse in (False, True)
            ]
        turn = _FIRST_STATES
        found: int | None = None
        # Before the last turn, time is shared with the methods that follow.
        shared = self._share() if most_states < _MOST_STATES and self.wanted is None else self.guard
        while self._goes_on() and shared.check_now() is None and not done:
            for search in self.searches:
                if self.wanted is None:
                    search.upper_bytes = min(search.upper_bytes, self.peak)
                end = search.advance(self.guard, turn)
                self.lower = max(self.lower, min(search.lower_bytes, self.peak))
                if end is SearchEnd.OPEN:
                    continue
                self.exhausted = done = True
                if end is SearchEnd.FOUND:
                    found = self._offer(search.order)
                break
            if all(search.states >= most_states for search in self.searches):
                break
            if not done and not self.has_sub_problem_bound:
                self.has_sub_problem_bound = True
                self.lower = sub_problem_bound(self.core, self.core_order, floor=self.lower, guard=self.guard)
                if self.peak <= self.lower and self.wanted is None:
                    break
            turn += turn // 2
        self._note("exact", found, before, work)

    def _finish(self) -> Outcome[OrderResult]:
        if self.exhausted:
            self.lower, certificate = self.peak, Certificate.EXHAUSTED
        elif self.peak <= self.lower:
            certificate = Certificate.MEETS_BOUND
        else:
            certificate = Certificate.BOUND
        result = OrderResult(
            self.order,
            self.peak,
            self.lower,
            certificate,
            self.guard.work,
            self.guard.seconds(),
            self.results,
        )
        return self.guard.finish(
            result,
            complete=certificate.is_optimal,
            best=self.peak,
            bound=self.lower,
            detail=str(certificate),
        )


ALL: Final = "all"
METHODS: Final[tuple[str, ...]] = (
    *LIST_METHODS,
    "reduction",
    "windows",
    "beam",
    "hierarchical",
    "serenity_dp",
    "exact",
)


def table_rows(methods: Mapping[str, MethodResult]) -> list[tuple[str, int | None, float]]:
    """Name, peak and seconds of each method, best peak first; methods without an order last."""
    rows = [(name, result.peak_bytes, result.seconds) for name, result in methods.items()]
    return sorted(rows, key=lambda row: (row[1] is None, row[1] or 0))

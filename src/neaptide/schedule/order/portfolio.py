"""The best order that all methods together find, with proof where there is one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from neaptide.errors import UsageError
from neaptide.named_peers import CP_WINDOWS, LISTS, ORDERS, STRUCTURES, peer
from neaptide.outcome import LimitGuard, Limits, Outcome, left_out
from neaptide.schedule.order.bounds.escape import escape_bound
from neaptide.schedule.order.bounds.lower import cut_bound, per_op_bound, sub_problem_bound
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.heuristics import LIST_METHODS, ListMethod, program_order
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.parts import SolvedPart
from neaptide.schedule.order.regions.reduce import Reduced, ReductionStats, reduce
from neaptide.schedule.order.result import Certificate, FoundOrder, MethodResult, OrderResult
from neaptide.schedule.order.search.beam import beam_order
from neaptide.schedule.order.search.bitset_lattice import Lattice
from neaptide.schedule.order.search.downsets import DownsetSearch, SearchEnd
from neaptide.schedule.order.search.improve import improve_peak
from neaptide.schedule.order.settings import DEFAULT, OrderSettings

_ON_BITSETS: Final = frozenset({"beam", "exact", *ORDERS})  # those that need closures
_FIRST_LISTS: Final = tuple(name for name in LIST_METHODS if name != "program_order")
_BOUND: Final = "bound"  # computed whatever methods are named


def best_order(
    problem: OrderProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    methods: Sequence[str] | None = None,
    without: Collection[str] = (),
    settings: OrderSettings = DEFAULT,
) -> Outcome[OrderResult]:
    """The best order found within limits; the list order is always a candidate, so it is never worse than that.

    First minimum cuts at the peak of the list order, a quick exact reduction, and two more lists with cuts at their best
    peak: where one of them proves the answer it is there in milliseconds, and the others do not run. Then, on what exact
    reductions leave: windows around the peak, beams in both directions, exact searches over downsets forwards and
    reversed in turn, with the bound of certified sub-problems between them. Under a work limit alone (a unit is a state
    or a cut) the answer is the same on every machine.

    Args:
        problem: storages and ops.
        limits: of time and work; without any, exact searches end at a million states each.
        interrupt: when set, the best so far is returned.
        methods: names out of `METHODS`, or `all` of them; by default as many as it takes. The list order is always
            there. `cp_windows`, CP-SAT on windows around the peak, runs only by name: it needs OR-tools.
        without: stages to leave out by default, of `STAGES`, to measure what they earn.
        settings: how far each method goes.

    Raises:
        UsageError: for an unknown method.
        MissingExtra: a method of others is asked for and not installed.
    """
    if methods is not None and ALL in methods:
        methods = METHODS
    guard = LimitGuard(limits or Limits(), interrupt)
    return _Portfolio(problem, guard, interrupt, methods, left_out(without, STAGES), settings).solve()


class FindOrder(Protocol):
    """A peer: looks for an order of a problem, from an order that is known."""

    def __call__(
        self, problem: OrderProblem, order: Sequence[int], *, guard: LimitGuard, lower_bytes: int = 0
    ) -> FoundOrder: ...


class Structure(Protocol):
    """A peer: proves an order of a problem that has one structure as a whole, or says what breaks it."""

    def __call__(
        self, problem: OrderProblem, limits: Limits, interrupt: threading.Event | None
    ) -> Outcome[tuple[int, ...]]: ...


class _Portfolio:
    def __init__(
        self,
        problem: OrderProblem,
        guard: LimitGuard,
        interrupt: threading.Event | None,
        methods: Sequence[str] | None,
        without: frozenset[str],
        settings: OrderSettings = DEFAULT,
    ) -> None:
        for name in methods or ():
            if name not in (*METHODS, CP_WINDOWS):
                raise UsageError(
                    f"there is no ordering method {name!r}",
                    next_step=f"choose from {', '.join((*METHODS, CP_WINDOWS))}, or {ALL}",
                )
        self.problem = problem
        self.guard = guard
        self.interrupt = interrupt
        self.wanted = methods
        self.without = without
        self.settings = settings
        self.results: dict[str, MethodResult] = {}
        self.order = tuple(range(problem.op_count))
        profile = evaluate_order(problem, self.order)
        self.peak, self.byte_steps = profile.peak_bytes, sum(profile.bytes_at)
        self.lower = per_op_bound(problem)
        self.exhausted = False
        # What is searched: the problem itself, or what exact reductions leave of it; with an order of that.
        self.core = problem
        self.core_order, self.core_peak = self.order, self.peak
        self.reduced: Reduced | None = None
        self.last_reduction: ReductionStats | None = None
        self.parts: list[SolvedPart] = []
        self.lattices: dict[bool, Lattice] = {}
        self.searches: list[DownsetSearch] = []
        self.has_sub_problem_bound = False
        self.escaped: set[bool] = set()  # directions

    def solve(self) -> Outcome[OrderResult]:
        self._list("program_order")
        for name, step in self._plan():
            # Named methods are compared as they are, on the problem as it is, though another has the proof already.
            is_open = not self._is_proved() and name not in self.without
            is_due = is_open if self.wanted is None else name in (*self.wanted, _BOUND)
            fits = name not in _ON_BITSETS or self.core.op_count <= self.settings.bitset_ops
            if is_due and fits and self._goes_on():
                step()
        return self._finish()

    def _plan(self) -> list[tuple[str, Callable[[], None]]]:
        """All that may be done, by method, cheap things first. What is done twice has learnt something in between."""
        if self.wanted is not None:
            lists = [(name, partial(self._list, name)) for name in (*_FIRST_LISTS, *LISTS)]
            reduction = ("reduction", partial(self._reduce, self.settings.region_states))
            bounds = [(_BOUND, self._cut_bound), (_BOUND, self._escape_bound)]
            return [*lists, *bounds, *self._structures(), reduction, *self._searches()]
        quick = ("reduction", partial(self._reduce, self.settings.first_states))
        first = [(name, partial(self._list, name)) for name in _FIRST_LISTS]
        is_quick = self.problem.op_count <= self.settings.quick_ops
        return [
            (_BOUND, partial(self._cut_bound, only_proof=True)),
            *([quick, *first] if is_quick else [*first, quick]),
            (_BOUND, partial(self._cut_bound, only_proof=True)),
            (_BOUND, self._escape_bound),
            ("reduction", partial(self._reduce, self.settings.region_states)),
            *self._searches(),
        ]

    def _searches(self) -> list[tuple[str, Callable[[], None]]]:
        windows, beam = ("windows", self._windows), ("beam", self._beams)
        turns = (self.settings.early_states, self.settings.most_states)
        first, last = [("exact", partial(self._exact, states)) for states in turns]
        if self.wanted is not None:
            peers = [(name, partial(self._peer, name)) for name in ORDERS]
            return [windows, beam, *peers, first, last]
        bound = (_BOUND, self._escape_bound)
        large = ("reduction", partial(self._reduce, self.settings.large_region_states))
        return [windows, bound, beam, first, large, last]

    def _structures(self) -> list[tuple[str, Callable[[], None]]]:
        """Methods for problems of one structure. By name only: `reduction` does as much for every part."""
        return [(name, partial(self._structure, name)) for name in STRUCTURES]

    def _structure(self, name: str) -> None:
        before, work = self.guard.seconds(), self.guard.work
        solve: Structure = peer("orders", "structures").STRUCTURES[name]
        outcome = solve(self.problem, self._share().limits, self.interrupt)
        self.guard.exhausted(outcome.work)
        peak = self._offer(outcome.value, is_core=False)
        self.exhausted = self.exhausted or outcome.termination.is_proved
        self._note(name, peak, before, work)
        self.results[name] = replace(self.results[name], note=outcome.termination.detail)

    def _list(self, name: str) -> None:
        method: ListMethod = (
            LIST_METHODS[name] if name in LIST_METHODS else peer("orders", "lists").LISTS[name]
        )
        self._try(name, partial(method, self.problem), is_core=False)

    def _peer(self, name: str) -> None:
        inner = self._share()
        find: FindOrder = peer("orders", name).find_order
        notes = []

        def search() -> tuple[int, ...] | None:
            order, note = find(self.core, self.core_order, guard=inner, lower_bytes=self.lower)
            notes.append(note)
            return order

        self._try(name, search, inner)
        self.results[name] = replace(self.results[name], note=notes[-1])

    def _cut_bound(self, *, only_proof: bool = False) -> None:
        if self.peak > self.lower:
            inner = self._share()
            bound = cut_bound(
                self.core,
                self.core_order,
                floor=self.lower,
                guard=inner,
                upper_bytes=self.peak,
                only_proof=only_proof,
            )
            self.guard.exhausted(inner.work)
            self.lower = max(self.lower, bound.nbytes)

    def _escape_bound(self) -> None:
        """In both directions, each to its end once for a core: what it comes to does not depend on the order."""
        for reverse in (False, True):
            if self.peak > self.lower and reverse not in self.escaped:
                inner = self._share()
                self.lower = escape_bound(
                    self.core,
                    self.core_order,
                    floor=self.lower,
                    upper_bytes=self.peak,
                    guard=inner,
                    reverse=reverse,
                )
                self.guard.exhausted(inner.work)
                if inner.exhausted(0) is None:
                    self.escaped.add(reverse)

    def _reduce(self, region_states: int) -> None:
        """Put exact reductions between the problem and the searches, or go on with regions left for their size."""
        last = self.last_reduction
        if last is not None and not last.skipped and last.limit is None:
            return
        before, work = self.guard.seconds(), self.guard.work
        limits = self._share().limits
        sizes = () if self.reduced is None else tuple(map(len, self.reduced.contents))
        reduced = reduce(
            self.core, limits, region_states=region_states, interrupt=self.interrupt, sizes=sizes
        )
        self.guard.exhausted(reduced.stats.states)
        self.parts += reduced.stats.parts
        self.last_reduction = reduced.stats
        if self.reduced is not None:
            reduced = replace(reduced, contents=tuple(map(self.reduced.expand, reduced.contents)))
        peak = None
        if reduced.problem.op_count < self.core.op_count or self.wanted is not None:
            peak = self._adopt(reduced)
        self.exhausted = self.exhausted or reduced.is_solved  # there is no other order
        self._note("reduction", peak, before, work)

    def _adopt(self, reduced: Reduced) -> int | None:
        """Take the best list order of a reduced problem, and search that from now on. Returns its peak."""
        best, least = program_order(reduced.problem), -1
        for method in LIST_METHODS.values():
            if reduced.is_solved or not self._goes_on():
                break
            order = method(reduced.problem)
            highest = evaluate_order(reduced.problem, order).peak_bytes
            if least < 0 or highest < least:
                best, least = order, highest
        peak = self._offer(reduced.expand(best), is_core=False)
        if self.wanted is None:
            self.core, self.core_order, self.reduced = reduced.problem, best, reduced
            self.core_peak = self.peak if peak is None else peak
            # What the searches and the bound know is about the old core.
            self.lattices.clear()
            self.searches.clear()
            self.has_sub_problem_bound = False
            self.escaped.clear()
        return peak

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
        core_order, order = order, self.reduced.expand(order) if is_core and self.reduced else order
        profile = evaluate_order(self.problem, order)
        peak = profile.peak_bytes
        if is_core and peak < self.core_peak:
            self.core_order, self.core_peak = core_order, peak
        # Between orders of the same peak, shorter lifetimes decide.
        steps = sum(profile.bytes_at)
        if (peak, steps) < (self.peak, self.byte_steps):
            self.order, self.peak, self.byte_steps = order, peak, steps
        return peak

    def _try(
        self,
        name: str,
        method: Callable[[], tuple[int, ...] | None],
        inner: LimitGuard | None = None,
        *,
        is_core: bool = True,
    ) -> None:
        """Run a method; what it has used of its own limits is charged to the whole."""
        before, work = self.guard.seconds(), self.guard.work
        used = inner.work if inner is not None else 0
        peak = self._offer(method(), is_core=is_core)
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
        for width in self.settings.beam_widths:
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
        improve = partial(
            improve_peak,
            self.core,
            self.core_order,
            guard=inner,
            lower_bytes=self.lower,
            settings=self.settings,
        )
        self._try("windows", improve, inner)

    def _share(self) -> LimitGuard:
        """Limits for a method that others come after: half of what is left of each."""
        return LimitGuard(self.guard.left(2), self.interrupt)

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
        turn = self.settings.first_states
        found: int | None = None
        # Before the last turn, time is shared with the methods that follow.
        shared = (
            self._share() if most_states < self.settings.most_states and self.wanted is None else self.guard
        )
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
            tuple(self.parts),
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
    *LISTS,
    *STRUCTURES,
    "reduction",
    "windows",
    "beam",
    *(name for name in ORDERS if name != CP_WINDOWS),
    "exact",
)

STAGES: Final = (
    *_FIRST_LISTS,
    _BOUND,
    "reduction",
    "windows",
    "beam",
    "exact",
)
"""What the default tries beside program order."""

"""The best order that all methods together find, with proof where there is one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from neaptide.errors import UsageError
from neaptide.named_peers import CP_WINDOWS, LISTS, ORDERS, STRUCTURES, peer
from neaptide.outcome import LimitGuard, Limits, Outcome, left_out
from neaptide.schedule.order.bounds.lower import cut_bound, escape_bound, per_op_bound, sub_problem_bound
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.heuristics import Order, backward_list, lpmf
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.regions.parts import SolvedPart
from neaptide.schedule.order.regions.reduce import REGION_STATES, Reduced, reduce
from neaptide.schedule.order.result import Certificate, FoundOrder, MethodResult, OrderResult
from neaptide.schedule.order.search.downsets import DownsetSearch, SearchEnd, beam_order
from neaptide.schedule.order.search.improve import improve_peak
from neaptide.schedule.order.search.lattice import Lattice
from neaptide.schedule.order.steps import Steps, profile, to_steps

FIRST_STATES: Final = 300
"""Downsets of one region in the first reduction, and of the first turn of an exact search, each turn of which has half as many
again as the last. Bounds prove most of what is wider (`benchmarks/order_structures.py`)."""
LARGE_REGION_STATES: Final = 10 * REGION_STATES
"""Downsets of one region where an exact search has not ended soon: a second or two."""
_MOST_STATES: Final = 1_000_000  # of an exact search: about a gigabyte
_EARLY_STATES: Final = 10_000  # of it, in each direction, before wide regions are reduced
_BEAM_WIDTHS: Final = (1, 8)
_BITSET_OPS: Final = 30_000  # of the largest problem for methods on bitsets
_QUICK_OPS: Final = 5_000  # of the largest problem that is reduced before it is ordered by a list

_ON_BITSETS: Final = frozenset({"beam", "exact", *ORDERS})
_BOUND: Final = "bound"  # computed whatever methods are named
_LISTS: Final[Mapping[str, Callable[[Steps], Order]]] = MappingProxyType(
    {"backward_list": backward_list, "lpmf": lpmf}
)
STAGES: Final = (*_LISTS, _BOUND, "reduction", "windows", "beam", "exact")
"""What the default tries beside program order."""
ALL: Final = "all"
METHODS: Final[tuple[str, ...]] = (
    "program_order",
    *_LISTS,
    *LISTS,
    *STRUCTURES,
    "reduction",
    "windows",
    "beam",
    *(name for name in ORDERS if name != CP_WINDOWS),
    "exact",
)


def best_order(
    problem: OrderProblem,
    limits: Limits | None = None,
    interrupt: threading.Event | None = None,
    *,
    methods: Sequence[str] | None = None,
    without: Collection[str] = (),
) -> Outcome[OrderResult]:
    """The best order found within limits; the list order is always a candidate, so it is never worse than that.

    First minimum cuts at the peak of the list order, a quick exact reduction, and two lists with cuts at their best
    peak: where one of them proves the answer it is there in milliseconds, and the others do not run. Then, on what exact
    reductions leave: windows around the peak, beams in both directions, exact searches over downsets forwards and
    reversed in turn, with the bound of certified sub-problems between them. Under a work limit alone (a unit is a state
    or a cut) the answer is the same on every machine. `tests/schedule/order/test_order_method_conformance.py` holds each
    method. Without limits, exact searches end at a million states each.

    Args:
        methods: names out of `METHODS`, or `all` of them. `cp_windows`, CP-SAT on windows around the peak, runs only by
            name: it needs OR-tools.
        without: stages to leave out by default, of `STAGES`, to measure what they earn.
    """
    if methods is not None and ALL in methods:
        methods = METHODS
    for name in methods or ():
        if name not in (*METHODS, CP_WINDOWS):
            raise UsageError(
                f"there is no ordering method {name!r}",
                next_step=f"choose from {', '.join((*METHODS, CP_WINDOWS))}, or {ALL}",
            )
    search = _Portfolio(problem, limits or Limits(), interrupt, is_named=methods is not None)
    if methods is None:
        return search.solve(search.default_plan(), left_out(without, STAGES))
    return search.solve([entry for entry in search.named_plan() if entry[0] in (*methods, _BOUND)])


_Plan: TypeAlias = list[tuple[str, Callable[[], int | None]]]


class _Portfolio:
    """One search: methods return the peak of what they have found, and offer it.

    Named methods are compared as they are, on the problem as it is, though another has the proof already.
    """

    def __init__(
        self, problem: OrderProblem, limits: Limits, interrupt: threading.Event | None, *, is_named: bool
    ) -> None:
        self.problem = problem
        self.guard = LimitGuard(limits, interrupt)
        self.interrupt = interrupt
        self.is_named = is_named
        self.results: dict[str, MethodResult] = {}
        self.notes: dict[str, str] = {}  # what a peer says besides, by name
        is_small = problem.op_count <= _QUICK_OPS  # the time of one list grows with the width
        self.lists = _LISTS if is_small else {"backward_list": backward_list}
        self.order = tuple(range(problem.op_count))
        checked = evaluate_order(problem, self.order)
        self.peak, self.byte_steps = checked.peak_bytes, sum(checked.bytes_at)
        self.lower = per_op_bound(problem)
        self.exhausted = False
        self.parts: list[SolvedPart] = []
        self.reduced: Reduced | None = None
        self.last_reduction: Reduced | None = None
        self._search_in(to_steps(problem), self.order, self.peak)

    def _search_in(self, core: Steps, order: Order, peak: int) -> None:
        """What is searched from now on: the problem itself, or what exact reductions leave of it; with an order of that."""
        self.core, self.core_order, self.core_peak = core, order, peak
        self.lattices: dict[bool, Lattice] = {}
        self.searches: list[DownsetSearch] = []
        self.has_sub_problem_bound = False
        self.escaped: set[bool] = set()  # directions

    def default_plan(self) -> _Plan:
        """All that may be done, cheap things first. What is done twice has learnt something in between."""
        quick = ("reduction", partial(self._reduce, FIRST_STATES))
        first = [(name, partial(self._list, name)) for name in self.lists]
        is_quick = self.problem.op_count <= _QUICK_OPS
        proof = (_BOUND, partial(self._cut_bound, only_proof=True))
        escape = (_BOUND, self._escape_bound)
        return [
            proof,
            *((quick, *first) if is_quick else (*first, quick)),
            proof,
            escape,
            ("reduction", partial(self._reduce, REGION_STATES)),
            ("windows", self._windows),
            escape,
            ("beam", self._beams),
            ("exact", partial(self._exact, _EARLY_STATES)),
            ("reduction", partial(self._reduce, LARGE_REGION_STATES)),
            ("exact", partial(self._exact, _MOST_STATES)),
        ]

    def named_plan(self) -> _Plan:
        return [
            *((name, partial(self._list, name)) for name in (*_LISTS, *LISTS)),
            (_BOUND, self._cut_bound),
            (_BOUND, self._escape_bound),
            *((name, partial(self._structure, name)) for name in STRUCTURES),
            ("reduction", partial(self._reduce, REGION_STATES)),
            ("windows", self._windows),
            ("beam", self._beams),
            *((name, partial(self._peer, name)) for name in ORDERS),
            ("exact", partial(self._exact, _EARLY_STATES)),
            ("exact", partial(self._exact, _MOST_STATES)),
        ]

    def solve(self, plan: _Plan, without: Collection[str] = ()) -> Outcome[OrderResult]:
        self._run("program_order", lambda: self.peak)
        for name, method in plan:
            fits = name not in _ON_BITSETS or self.core.op_count <= _BITSET_OPS
            if fits and name not in without and not self._is_enough() and self._goes_on():
                self._run(name, method)
        return self._finish()

    def _run(self, name: str, method: Callable[[], int | None]) -> None:
        """Run a method, and note what it has reached and used."""
        before, work = self.guard.seconds(), self.guard.work
        peak = method()
        if name == _BOUND:
            return
        old = self.results.get(name, MethodResult(None, 0.0))
        known = [p for p in (peak, old.peak_bytes) if p is not None]
        self.results[name] = MethodResult(
            min(known, default=None),
            old.seconds + self.guard.seconds() - before,
            old.states + self.guard.work - work,
            self.notes.get(name, ""),
        )

    @contextmanager
    def _half(self) -> Iterator[LimitGuard]:
        """Limits for a method that others come after: half of what is left of each; what it uses is charged to the whole."""
        guard = LimitGuard(self.guard.left(2), self.interrupt)
        yield guard
        self.guard.exhausted(guard.work)

    def _goes_on(self) -> bool:
        return self.guard.exhausted(0) is None and self.guard.check_now() is None

    def _is_proved(self) -> bool:
        return self.exhausted or self.peak <= self.lower

    def _is_enough(self) -> bool:
        return self._is_proved() and not self.is_named

    def _upper(self) -> int:
        """Only orders below this are of use; where methods are compared, one as good as the best is, too."""
        return self.peak + self.is_named

    def _offer(self, order: Order | None, *, of_core: bool = True) -> int | None:
        """Keep an order, of the core or of the problem, if it is better: by peak, then by byte-steps. Returns its peak."""
        if order is None:
            return None
        whole = self.reduced.expand(order) if of_core and self.reduced else order
        checked = evaluate_order(self.problem, whole)
        peak = checked.peak_bytes
        if of_core and peak < self.core_peak:
            self.core_order, self.core_peak = order, peak
        # Between orders of the same peak, shorter lifetimes decide.
        byte_steps = sum(checked.bytes_at)
        if (peak, byte_steps) < (self.peak, self.byte_steps):
            self.order, self.peak, self.byte_steps = whole, peak, byte_steps
        return peak

    def _list(self, name: str) -> int | None:
        if name in _LISTS:
            return self._offer(_LISTS[name](to_steps(self.problem)), of_core=False)
        return self._offer(peer("orders", "lists").LISTS[name](self.problem), of_core=False)

    def _structure(self, name: str) -> int | None:
        """Methods for problems of one structure. By name only: `reduction` does as much for every part."""
        solve: Callable[..., Outcome[Order]] = peer("orders", "structures").STRUCTURES[name]
        outcome = solve(self.problem, self.guard.left(2), self.interrupt)
        self.guard.exhausted(outcome.work)
        self.exhausted = self.exhausted or outcome.termination.is_proved
        self.notes[name] = outcome.termination.detail
        return self._offer(outcome.value)

    def _peer(self, name: str) -> int | None:
        find: Callable[..., FoundOrder] = peer("orders", name).find_order
        with self._half() as guard:
            order, note = find(self.problem, self.core_order, guard=guard, lower_bytes=self.lower)
        self.notes[name] = note
        return self._offer(order)

    def _cut_bound(self, *, only_proof: bool = False) -> None:
        if self.peak > self.lower:
            with self._half() as guard:
                bound = cut_bound(
                    self.core,
                    self.core_order,
                    floor=self.lower,
                    guard=guard,
                    upper_bytes=self.peak,
                    only_proof=only_proof,
                )
            self.lower = max(self.lower, bound.nbytes)

    def _escape_bound(self) -> None:
        """In both directions, each to its end once for a core: what it comes to does not depend on the order."""
        for reverse in (False, True):
            if self.peak > self.lower and reverse not in self.escaped:
                with self._half() as guard:
                    self.lower = escape_bound(
                        self.core,
                        self.core_order,
                        floor=self.lower,
                        upper_bytes=self.peak,
                        guard=guard,
                        reverse=reverse,
                    )
                if guard.exhausted(0) is None:
                    self.escaped.add(reverse)

    def _reduce(self, region_states: int) -> int | None:
        """Put exact reductions between the problem and the searches, or go on with regions left for their size."""
        last = self.last_reduction
        if last is not None and not last.stats.skipped and last.limit is None:
            return None
        sizes = () if self.reduced is None else tuple(map(len, self.reduced.contents))
        reduced = reduce(
            self.core, self.guard.left(2), region_states=region_states, interrupt=self.interrupt, sizes=sizes
        )
        self.guard.exhausted(reduced.stats.states)
        self.parts += reduced.stats.parts
        self.last_reduction = reduced
        if self.reduced is not None:
            reduced = replace(reduced, contents=tuple(map(self.reduced.expand, reduced.contents)))
        peak = None
        if reduced.steps.op_count < self.core.op_count or self.is_named:
            peak = self._adopt(reduced)
        self.exhausted = self.exhausted or reduced.is_solved  # there is no other order
        return peak

    def _adopt(self, reduced: Reduced) -> int | None:
        """Take the best list order of a reduced problem, and search that from now on. Returns its peak."""
        best = tuple(range(reduced.steps.op_count))
        if not reduced.is_solved and self._goes_on():
            orders = (best, *(make(reduced.steps) for make in self.lists.values()))
            best = min(orders, key=lambda order: profile(reduced.steps, order).peak_bytes)
        peak = self._offer(reduced.expand(best), of_core=False)
        if not self.is_named:
            self.reduced = reduced
            self._search_in(reduced.steps, best, self.peak if peak is None else peak)
        return peak

    def _lattice(self, *, reverse: bool) -> Lattice:
        if reverse not in self.lattices:
            self.lattices[reverse] = Lattice(self.core, reverse=reverse)
        return self.lattices[reverse]

    def _windows(self) -> int | None:
        with self._half() as guard:
            order = improve_peak(self.core, self.core_order, guard=guard, lower_bytes=self.lower)
        return self._offer(order)

    def _beams(self) -> int | None:
        before = self.peak
        found: list[int | None] = []
        with self._half() as guard:
            for width in _BEAM_WIDTHS:
                for reverse in (False, True):
                    if self._is_proved() and (found or not self.is_named):
                        break
                    if guard.check_now() is not None:
                        break
                    lattice = self._lattice(reverse=reverse)
                    order = beam_order(
                        lattice, width, level=self.lower, upper_bytes=self._upper(), guard=guard
                    )
                    found.append(self._offer(order))
        if not self.is_named and self.peak < before and not self._is_proved() and self._goes_on():
            self._run("windows", self._windows)
        return min((peak for peak in found if peak is not None), default=None)

    def _exact(self, most_states: int) -> int | None:
        """Forwards and reversed in turn, each continuing where it stopped."""
        if self.exhausted and (not self.is_named or "exact" in self.results):
            return None
        if not self.searches:
            self.searches = [
                DownsetSearch(
                    self._lattice(reverse=reverse), lower_bytes=self.lower, upper_bytes=self._upper()
                )
                for reverse in (False, True)
            ]
        turn = FIRST_STATES
        # Before the last turn, time is shared with the methods that follow.
        is_shared = most_states < _MOST_STATES and not self.is_named
        shared = LimitGuard(self.guard.left(2), self.interrupt) if is_shared else self.guard
        while self._goes_on() and shared.check_now() is None:
            for search in self.searches:
                search.upper_bytes = min(search.upper_bytes, self._upper())
                end = search.advance(self.guard, turn)
                self.lower = max(self.lower, min(search.lower_bytes, self.peak))
                if end is not SearchEnd.OPEN:
                    self.exhausted = True
                    return self._offer(search.order)
            if all(search.states >= most_states for search in self.searches):
                break
            if not self.has_sub_problem_bound:
                self.has_sub_problem_bound = True
                self.lower = sub_problem_bound(self.core, self.core_order, floor=self.lower, guard=self.guard)
                if self._is_enough():
                    break
            turn += turn // 2
        return None

    def _finish(self) -> Outcome[OrderResult]:
        if self.exhausted:
            self.lower, certificate = self.peak, Certificate.EXHAUSTED
        else:
            certificate = Certificate.MEETS_BOUND if self.peak <= self.lower else Certificate.BOUND
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

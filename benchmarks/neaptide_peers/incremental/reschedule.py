"""Ordering again after an edit: what the run before has proved still holds where the edit does not reach."""

from __future__ import annotations

from dataclasses import dataclass

from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.schedule.order.bounds.lower import cut_bound, hill_bound, per_op_bound
from neaptide.schedule.order.evaluate import OrderProfile, evaluate_order
from neaptide.schedule.order.search.improve import improve_peak, solve_window
from neaptide.schedule.order.search.lattice import Lattice
from neaptide.schedule.order.steps import to_steps
from neaptide_peers.incremental.adapted_order import adapted_order, stretch
from neaptide_peers.incremental.carried import carried_bound
from neaptide_peers.incremental.edit import Edit
from neaptide_peers.incremental.reachable import reachable_below
from neaptide_peers.incremental.recalling import RecallingSearch, take_turns
from neaptide_peers.incremental.refutation import recall, unseen_bound
from neaptide_peers.incremental.settings import SETTINGS
from neaptide_peers.incremental.settling import Settled


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """An order after an edit.

    Attributes:
        order: of the edited problem.
        peak_bytes: of it.
        order_lower_bound_bytes: no order of the edited problem has a lower peak.
        start: position at which the stretch that was ordered again begins; 0 if none had to be.
        end: one past its end; 0 if none had to be.
        decided_by: what has shown that the peak is lowest; `nothing` if there is a gap.
    """

    order: tuple[int, ...]
    peak_bytes: int
    order_lower_bound_bytes: int
    start: int
    end: int
    decided_by: str = "nothing"


def reschedule(
    before: Settled,
    edit: Edit,
    *,
    limits: Limits | None = None,
    most_ops: int | None = None,
    proof_states: int | None = None,
) -> Outcome[Rescheduled]:
    """Order an edited problem again, from the order and the proof before the edit.

    New ops go next to those that need them. If that raises the peak, the stretch around the edit is solved again, as
    in MAGIS (ASPLOS 2024): it grows to a narrow waist on either side, where few ops can run on both sides of a
    position and few bytes are live; then small windows around the peak. The bound comes from the first of these
    that meets the peak: the old one, where the edit only adds; the old proof, where it has not looked at what the
    edit changed; the cut that was the proof before, and that of the op at the peak; cuts around the set of ops that
    no order could leave; a search that ends wherever the old one knows how what is left goes on.

    At least O(size), whatever the edit: the order is adapted and evaluated, and the edit is told from the rest.

    Args:
        before: the problem before the edit, ordered, from `settle`.
        edit: of it.
        limits: of time and work; a unit of work is a state or a cut.
        most_ops: of the stretch; None for the usual number.
        proof_states: of the search in each direction; None for the usual number, 0 leaves it out.
    """
    states = SETTINGS.proof_states if proof_states is None else proof_states
    search = _Rescheduling(before, edit, LimitGuard(limits or Limits()), states)
    return search.run(SETTINGS.most_ops if most_ops is None else most_ops)


class _Rescheduling:
    def __init__(self, before: Settled, edit: Edit, guard: LimitGuard, proof_states: int) -> None:
        self.before, self.edit, self.guard = before, edit, guard
        self.problem = edit.problem
        self.proof_states = proof_states
        kept = [now for op in before.order if (now := edit.now_at[op]) is not None]
        self.order = adapted_order(self.problem, kept)
        self.profile: OrderProfile = evaluate_order(self.problem, self.order)
        if self.peak > before.peak_bytes:
            self._take(adapted_order(self.problem, kept, early=True))
        self.lower = 0
        self.bound_by = "nothing"
        self.solved = (0, 0)
        self.steps = to_steps(self.problem)
        self.cut: set[int] = set()

    @property
    def peak(self) -> int:
        return self.profile.peak_bytes

    def run(self, most_ops: int) -> Outcome[Rescheduled]:
        before = self.before
        carried = carried_bound(
            before.problem, before.order_lower_bound_bytes, self.problem, self.edit.now_at
        )
        self._raise_to(carried, "the old bound")
        if self.peak > self.lower and before.refutation is not None:
            self._raise_to(unseen_bound(before.refutation, self.edit), "the old search")
        if self.peak > self.lower and before.witness is not None:
            self._cut_at(self.edit.now_at[before.witness])
        is_higher = self.peak > before.peak_bytes
        if self.peak > self.lower and is_higher:
            self._solve(most_ops)
        while self.peak > self.lower:
            self._cut_at(self._peak_op())
            self._reach()
            # Where the old peak took a search, that is cheaper than windows that come to nothing.
            needs_search = before.refutation is not None and before.refutation.dead and not is_higher
            if self.peak <= self.lower or needs_search or not self._improve():
                break
        if self.peak > self.lower and self.proof_states:
            self._search()
        if self.peak > self.lower:
            floor = max(self.lower, per_op_bound(self.problem))
            bound = cut_bound(self.steps, self.order, floor=floor, guard=self.guard)
            self._raise_to(bound.nbytes, "a cut")
        start, end = self.solved
        decided_by = self.bound_by if self.peak <= self.lower else "nothing"
        result = Rescheduled(self.order, self.peak, self.lower, start, end, decided_by)
        detail = f"{end - start} ops ordered again, decided by {decided_by}"
        return self.guard.finish(result, best=self.peak, bound=self.lower, detail=detail)

    def _raise_to(self, bound: int, by: str) -> None:
        """Take a lower bound, if it is news."""
        if bound > self.lower:
            self.lower, self.bound_by = bound, by

    def _take(self, order: tuple[int, ...] | None) -> None:
        if order is None:
            return
        profile = evaluate_order(self.problem, order)
        if profile.peak_bytes < self.peak:
            self.order, self.profile = order, profile

    def _peak_op(self) -> int | None:
        position = self.profile.peak_position
        return None if position is None else self.order[position]

    def _cut_at(self, op: int | None) -> None:
        """The min-cut bound of one op."""
        if op is None or op in self.cut or self.guard.exhausted() is not None:
            return
        self.cut.add(op)
        self._raise_to(hill_bound(self.steps, op), "a cut")

    def _solve(self, most_ops: int) -> None:
        """Order the stretch around the edit anew, if the peak lies in it, down to the highest hill outside it."""
        start, end = stretch(self.problem, self.order, self.edit.changed, most_ops)
        hills = self.profile.bytes_at
        if self.peak > max(hills[start:end], default=0):
            return
        self.solved = (start, end)
        outside = max((*hills[:start], *hills[end:]), default=0)
        found = solve_window(
            self.steps,
            self.order,
            (start, end),
            guard=self.guard,
            lower_bytes=max(self.lower, outside, self.before.peak_bytes),
            upper_bytes=self.peak,
            states=SETTINGS.window_states,
        )
        self._take(found)

    def _improve(self) -> bool:
        """Solve small windows around the peak. Whether that has lowered it."""
        before = self.peak
        # The old peak is what to hope for; from there on searches need not raise their level step by step.
        enough = self.before.peak_bytes if before > self.before.peak_bytes else 0
        lower = max(self.lower, enough)
        found = improve_peak(
            self.steps,
            self.order,
            guard=self.guard,
            lower_bytes=lower,
            states=SETTINGS.window_states // 2,
        )
        self._take(found)
        return self.peak < before

    def _reach(self) -> None:
        """Look for a set of ops that no order below the peak leaves, from the one before the edit on."""
        if self.peak <= self.lower:
            return
        old = self.before.refutation
        way = list(zip(self.order, self.profile.bytes_at, strict=True))
        for reverse in (False, True) if old is None or old.dead else (old.reverse,):
            seed: list[int] = []
            if old is not None and not old.dead and old.below_bytes >= self.peak:
                ops = (now for op, now in enumerate(self.edit.now_at) if old.placed >> op & 1)
                seed = [now for now in ops if now is not None]
            inside = reachable_below(
                self.peak,
                way[::-1] if reverse else way,
                seed=seed,
                steps=self.steps,
                guard=self.guard,
                reverse=reverse,
            )
            if inside is not None:
                self._raise_to(self.peak, "cuts around a set")
                return

    def _search(self) -> None:
        """Decide whether an order is below the peak; with one, find the lowest peak."""
        old = self.before.refutation
        known = None if old is None or not old.dead else recall(old, self.edit)
        first = old is not None and old.reverse
        lattices = {first: Lattice(self.steps, reverse=first)}
        decisions = 0
        while self.peak > self.lower:
            # From a bound that was met before, the level rises no more than it must; else start below the peak.
            is_bound = self.lower >= self.before.order_lower_bound_bytes or decisions >= SETTINGS.decisions
            level = self.lower if is_bound else self.peak - 1
            decisions += 1
            searches = []
            for reverse in (first, not first):
                if reverse not in lattices:
                    lattices[reverse] = Lattice(self.steps, reverse=reverse)
                searches.append(
                    RecallingSearch(
                        lattices[reverse],
                        lower_bytes=level,
                        upper_bytes=self.peak,
                        recall=known if reverse == first else None,
                    )
                )
            done = take_turns(searches, self.guard, self.proof_states, alone=0 if old is None else old.states)
            if done is None:
                proved = max(search.lower_bytes for search in searches) if is_bound else 0
                self._raise_to(proved, "a search")
                return
            if done.order is not None:
                self._take(done.order)
            if is_bound or done.order is None:
                self._raise_to(done.lower_bytes, "a search")

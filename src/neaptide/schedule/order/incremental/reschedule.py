"""Ordering again after an edit: what the run before has proved still holds where the edit does not reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from neaptide.errors import VerifyError
from neaptide.outcome import LimitGuard, Limits, Outcome
from neaptide.schedule.order.bounds.lower import cut_bound, hill_bound, op_bounds
from neaptide.schedule.order.evaluate import DownsetState, OrderProfile, evaluate_order
from neaptide.schedule.order.incremental.carried import carried_bound
from neaptide.schedule.order.incremental.edit import Edit
from neaptide.schedule.order.incremental.reachable import reachable_below
from neaptide.schedule.order.incremental.recalling import RecallingSearch
from neaptide.schedule.order.incremental.refutation import Refutation, recall, refutation_of, unseen_bound
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.search.bitset_lattice import Lattice, mask_of
from neaptide.schedule.order.search.downsets import SearchEnd
from neaptide.schedule.order.search.improve import bytes_between, improve_peak, solve_window
from neaptide.schedule.order.settings import OrderSettings
from neaptide.schedule.order.steps import Steps, to_steps

_MOST_OPS: Final = 200  # of the stretch that is solved; beyond that its width is more than a leaf can take
_AT_THE_EDIT: Final = OrderSettings(window_states=40)
_ELSEWHERE: Final = OrderSettings(window_states=20)  # the old order was good there already
_PROOF_STATES: Final = 20_000
_SETTLE_STATES: Final = 60_000
_FIRST_TURN: Final = 256
_DECISIONS: Final = 3  # whether there is an order below the peak; then the level is raised from the bound


@dataclass(frozen=True, slots=True)
class Settled:
    """An ordered problem, with what its proof can tell about edits of it.

    Attributes:
        problem: storages and ops.
        order: of it.
        peak_bytes: of the order.
        order_lower_bound_bytes: no order has a lower peak.
        witness: an op whose min-cut bound is the peak; None if there is none.
        refutation: that no order is below the peak; None where a cut says so, or nothing does.
    """

    problem: OrderProblem
    order: tuple[int, ...]
    peak_bytes: int
    order_lower_bound_bytes: int
    witness: int | None
    refutation: Refutation | None


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


def settle(
    problem: OrderProblem,
    order: Sequence[int],
    lower_bytes: int,
    *,
    limits: Limits | None = None,
    states: int = _SETTLE_STATES,
) -> Settled:
    """Prove once more that an order is a best one, in a form that survives edits.

    Where the min-cut bound meets the peak there is nothing to keep: one cut says so again after an edit. Else a set
    of ops is looked for that no order below the peak can leave, by cuts, then by a search that starts just below the
    peak: with the proof known to exist, that takes far fewer states than to find it.

    Args:
        problem: storages and ops.
        order: of it.
        lower_bytes: no order has a lower peak.
        limits: of time and work; a unit of work is a state or a cut.
        states: of the search in each direction.

    Raises:
        VerifyError: `order` is not one of the problem.
    """
    guard = LimitGuard(limits or Limits())
    peak = evaluate_order(problem, order).peak_bytes
    cut = cut_bound(problem, order, guard=guard)
    witness, refutation = None, None
    if cut.nbytes >= peak:
        bounds = op_bounds(problem)
        witness = cut.op if cut.op is not None or peak not in bounds else bounds.index(peak)
    elif lower_bytes >= peak:
        refutation = _by_cuts(problem, order, peak, guard) or _by_search(problem, peak, guard, states)
    return Settled(problem, tuple(order), peak, min(lower_bytes, peak), witness, refutation)


def _by_cuts(problem: OrderProblem, order: Sequence[int], peak: int, guard: LimitGuard) -> Refutation | None:
    steps = to_steps(problem)
    hills = evaluate_order(problem, order).bytes_at
    for reverse in (False, True):
        way = list(zip(order, hills, strict=True))[:: -1 if reverse else 1]
        inside = reachable_below(problem, peak, way, steps=steps, guard=guard, reverse=reverse)
        if inside is not None:
            return Refutation(problem, peak, reverse, mask_of(sorted(inside)), {}, 0)
    return None


def _by_search(problem: OrderProblem, peak: int, guard: LimitGuard, states: int) -> Refutation | None:
    searches = [
        RecallingSearch(Lattice(problem, reverse=reverse), lower_bytes=peak - 1, upper_bytes=peak)
        for reverse in (False, True)
    ]
    done = _take_turns(searches, guard, states)
    return refutation_of(done) if done is not None and done.end is SearchEnd.NONE_BELOW else None


def reschedule(
    before: Settled,
    edit: Edit,
    *,
    limits: Limits | None = None,
    most_ops: int = _MOST_OPS,
    proof_states: int = _PROOF_STATES,
) -> Outcome[Rescheduled]:
    """Order an edited problem again, from the order and the proof before the edit.

    New ops go next to those that need them. If that raises the peak, the stretch around the edit is solved again, as
    in MAGIS (ASPLOS 2024): it grows to a narrow waist on either side, where few ops can run on both sides of a
    position and few bytes are alive; then small windows around the peak. The bound comes from the first of these
    that meets the peak: the old one, where the edit only adds; the old proof, where it has not looked at what the
    edit changed; the cut that was the proof before, and that of the op at the peak; cuts around the set of ops that
    no order could leave; a search that ends wherever the old one knows how what is left goes on.

    At least O(size), whatever the edit: the order is adapted and evaluated, and the edit is told from the rest.

    Args:
        before: the problem before the edit, ordered, from `settle`.
        edit: of it.
        limits: of time and work; a unit of work is a state or a cut.
        most_ops: of the stretch.
        proof_states: of the search in each direction; 0 leaves it out.
    """
    return _Rescheduling(before, edit, LimitGuard(limits or Limits()), proof_states).run(most_ops)


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
        self.steps: Steps | None = None
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
            bound = cut_bound(self.problem, self.order, floor=self.lower, guard=self.guard)
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
        self.steps = self.steps or to_steps(self.problem)
        self._raise_to(hill_bound(self.problem, self.steps, op), "a cut")

    def _solve(self, most_ops: int) -> None:
        """Order the stretch around the edit anew, if the peak lies in it, down to the highest hill outside it."""
        start, end = stretch(self.problem, self.order, self.edit.changed, most_ops)
        hills = self.profile.bytes_at
        if self.peak > max(hills[start:end], default=0):
            return
        self.solved = (start, end)
        outside = max((*hills[:start], *hills[end:]), default=0)
        found = solve_window(
            self.problem,
            self.order,
            start,
            end,
            guard=self.guard,
            lower_bytes=max(self.lower, outside, self.before.peak_bytes),
            upper_bytes=self.peak,
            settings=_AT_THE_EDIT,
        )
        self._take(found)

    def _improve(self) -> bool:
        """Solve small windows around the peak. Whether that has lowered it."""
        before = self.peak
        # The old peak is what to hope for; from there on searches need not raise their level step by step.
        enough = self.before.peak_bytes if before > self.before.peak_bytes else 0
        lower = max(self.lower, enough)
        found = improve_peak(
            self.problem, self.order, guard=self.guard, lower_bytes=lower, settings=_ELSEWHERE
        )
        self._take(found)
        return self.peak < before

    def _reach(self) -> None:
        """Look for a set of ops that no order below the peak leaves, from the one before the edit on."""
        if self.peak <= self.lower:
            return
        old = self.before.refutation
        self.steps = self.steps or to_steps(self.problem)
        way = list(zip(self.order, self.profile.bytes_at, strict=True))
        for reverse in (False, True) if old is None or old.dead else (old.reverse,):
            seed: list[int] = []
            if old is not None and not old.dead and old.below_bytes >= self.peak:
                ops = (now for op, now in enumerate(self.edit.now_at) if old.placed >> op & 1)
                seed = [now for now in ops if now is not None]
            inside = reachable_below(
                self.problem,
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
        lattices = {first: Lattice(self.problem, reverse=first)}
        decisions = 0
        while self.peak > self.lower:
            # From a bound that was met before, the level rises no more than it must; else start below the peak.
            is_bound = self.lower >= self.before.order_lower_bound_bytes or decisions >= _DECISIONS
            level = self.lower if is_bound else self.peak - 1
            decisions += 1
            searches = []
            for reverse in (first, not first):
                if reverse not in lattices:
                    lattices[reverse] = Lattice(self.problem, reverse=reverse)
                searches.append(
                    RecallingSearch(
                        lattices[reverse],
                        lower_bytes=level,
                        upper_bytes=self.peak,
                        recall=known if reverse == first else None,
                    )
                )
            done = _take_turns(
                searches, self.guard, self.proof_states, alone=0 if old is None else old.states
            )
            if done is None:
                proved = max(search.lower_bytes for search in searches) if is_bound else 0
                self._raise_to(proved, "a search")
                return
            if done.order is not None:
                self._take(done.order)
            if is_bound or done.order is None:
                self._raise_to(done.lower_bytes, "a search")


def _take_turns(
    searches: Sequence[RecallingSearch], guard: LimitGuard, states: int, alone: int = 0
) -> RecallingSearch | None:
    """Let searches for the same go on in turn until one ends; None if none does within so many states each.

    Args:
        searches: the most promising one first.
        guard: of all.
        states: of each.
        alone: states that the first one has to itself before the others begin.
    """
    turn = max(_FIRST_TURN, alone)
    while guard.check_now() is None and any(search.states < states for search in searches):
        for search in searches:
            if search.states < states and search.advance(guard, turn) is not SearchEnd.OPEN:
                return search
            turn = max(_FIRST_TURN, turn - alone) if search is searches[0] else turn
        alone = 0
        turn += turn // 2
    return None


def adapted_order(problem: OrderProblem, old_order: Sequence[int], *, early: bool = False) -> tuple[int, ...]:
    """A legal order of the edited problem close to the old one.

    An op keeps its place as far as dependencies let it; a new op goes to the place of the first op that needs it,
    or right behind the last that it needs when none does.

    Args:
        problem: after the edit.
        old_order: ops of `problem` that were there before, in the order they had; ops that are not in it are new. It
            may break dependencies that the edit has brought.
        early: a new op goes right behind the last that it needs, where it needs any.

    Raises:
        VerifyError: `old_order` names an op twice or one that is not there.
    """
    rank: dict[int, tuple[float, int]] = {}
    for position, op in enumerate(old_order):
        if not 0 <= op < problem.op_count or op in rank:
            raise VerifyError(f"the old order names op {op} twice, or it is not there")
        rank[op] = (float(position), op)
    if early:
        for op in range(problem.op_count):
            if op not in rank and all(b in rank for b in problem.predecessors[op]):
                last = max((rank[b][0] for b in problem.predecessors[op]), default=None)
                if last is not None:
                    rank[op] = (last + 0.25, op)
    for op in reversed(range(problem.op_count)):
        if op not in rank:
            users = [rank[s][0] for s in problem.successors[op] if s in rank]
            if users:
                rank[op] = (min(users) - 0.5, op)
    for op in range(problem.op_count):
        if op not in rank:
            rank[op] = (max((rank[b][0] for b in problem.predecessors[op]), default=-1.0) + 0.25, op)
    order = tuple(sorted(rank, key=rank.__getitem__))
    place = [0] * problem.op_count
    for position, op in enumerate(order):
        place[op] = position
    if all(place[b] < place[op] for op, before in enumerate(problem.predecessors) for b in before):
        return order
    state = DownsetState(problem)
    heap = [(rank[op], op) for op in state.ready]
    heapify(heap)
    while heap:
        _, op = heappop(heap)
        before = len(state.ready)
        state.run(op)
        for other in list(state.ready)[before - 1 :]:
            heappush(heap, (rank[other], other))
    return state.order()


def stretch(
    problem: OrderProblem, order: Sequence[int], touched: Iterable[int], most_ops: int
) -> tuple[int, int]:
    """Positions around the touched ops, widened to the narrowest waists within reach."""
    wanted = set(touched)
    spots = [position for position, op in enumerate(order) if op in wanted]
    if not spots:
        return 0, 0
    first, last = min(spots), max(spots)
    slack = max(8, (most_ops - (last + 1 - first)) // 2)
    widths = _waists(problem, order)
    valleys = bytes_between(problem, order)

    def narrowness(position: int) -> tuple[int, int]:
        return widths[position], valleys[position]

    starts = range(max(0, first - slack), first + 1)
    ends = range(last + 1, min(len(order), last + 1 + slack) + 1)
    start = min(starts, key=lambda position: (narrowness(position), position))
    end = min(ends, key=lambda position: (narrowness(position), -position))
    return start, end


def _waists(problem: OrderProblem, order: Sequence[int]) -> list[int]:
    """Before each position and at the end: how many later ops are ready already. O(edges)."""
    place = {op: position for position, op in enumerate(order)}
    change = [0] * (len(order) + 2)
    for op in order:
        ready_from = max((place[b] + 1 for b in problem.predecessors[op]), default=0)
        change[ready_from] += 1
        change[place[op] + 1] -= 1
    widths = []
    total = 0
    for position in range(len(order) + 1):
        total += change[position]
        widths.append(total)
    return widths

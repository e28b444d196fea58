"""A proof that no order has a lower peak, kept so that edits of the problem can do with parts of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from neaptide.schedule.order.bounds.lower import rest_bytes
from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import is_created_by, touched
from neaptide_peers.incremental.correspondence import Correspondence, is_same_op
from neaptide_peers.incremental.edit import Edit
from neaptide_peers.incremental.recalling import Recall, RecallingSearch

_SEVERAL: Final = 2


@dataclass(frozen=True, slots=True)
class Refutation:
    """Why no order is below a peak: every one has a higher hill before it leaves a set of ops.

    Attributes:
        problem: what it is about.
        below_bytes: no order of it has a peak below this.
        reverse: orders are looked at from the end.
        placed: the set, as a bitset.
        dead: by ops left, bytes of states from which every way on has a hill of at least `below_bytes`; empty where
            no search was needed.
        states: that the search took.
    """

    problem: OrderProblem
    below_bytes: int
    reverse: bool
    placed: int
    dead: Mapping[int, int]
    states: int


def refutation_of(problem: OrderProblem, search: RecallingSearch) -> Refutation:
    """What a search knows that has ended without an order, and had nothing to recall."""
    dead = search.dead()
    every = (1 << problem.op_count) - 1
    left_in_all = every
    for left in dead:
        left_in_all &= left
    return Refutation(
        problem, search.lower_bytes, search.lattice.reverse, every ^ left_in_all, dead, search.states
    )


def recall(refutation: Refutation, edit: Edit) -> Recall:
    """What a refutation says about states of the edited problem.

    Where everything that the edit has changed is placed, what is left is what it was: if the old search found no
    way on from there, there is none, and more or fewer bytes in that state move all hills alike.
    """
    same = Correspondence(refutation.problem, edit, reverse=refutation.reverse)
    return partial(_known_bound, refutation.dead, refutation.below_bytes, same)


def _known_bound(
    dead: Mapping[int, int], below_bytes: int, same: Correspondence, left: int, nbytes: int
) -> int:
    before = same.before(left)
    known = dead.get(before) if before is not None else None
    return 0 if known is None else below_bytes + nbytes - known


def unseen_bound(refutation: Refutation, edit: Edit) -> int:
    """The bound of a refutation, if the edit lowers nothing that its argument looks at; else 0. O(size).

    It looks at the ops of its set, and at those that are ready next to them. Every order starts with some of these
    (reversed: ends), and one of their hills reaches the bound before anything else may run. That still holds where
    these ops are as they were, nothing that they touch dies earlier, and nothing else becomes ready. New ops that
    would become ready there are left out first, with what only they make: an order without them has no higher hills.
    """
    view = _View(refutation, edit)
    return view.bound() if view.leave_out() and view.is_as_it_was() else 0


class _View:
    """The part of a problem that a search has looked at, before and after an edit."""

    def __init__(self, refutation: Refutation, edit: Edit) -> None:
        self.old, self.new, self.now_at = refutation.problem, edit.problem, edit.now_at
        self.changed = edit.changed
        self.reverse, self.below_bytes = refutation.reverse, refutation.below_bytes
        self.placed = {op for op in range(self.old.op_count) if refutation.placed >> op & 1}
        blockers = self.old.successors if self.reverse else self.old.predecessors
        self.looked_at = {
            op for op, before in enumerate(blockers) if op in self.placed or self.placed.issuperset(before)
        }
        self.placed_now = {now for op in self.placed if (now := self.now_at[op]) is not None}
        self.looked_at_now = {now for op in self.looked_at if (now := self.now_at[op]) is not None}
        self.out: set[int] = set()  # ops after the edit that are left out
        self.without: set[int] = set()  # storages that only they make

    def leave_out(self) -> bool:
        """Leave out what would become ready beside what was looked at; False where that is not possible."""
        new = self.new
        blockers = new.successors if self.reverse else new.predecessors
        followers = new.predecessors if self.reverse else new.successors
        waiting = {op for op, before in enumerate(blockers) if not before}
        waiting.update(after for op in self.placed_now for after in followers[op])
        while waiting:
            op = waiting.pop()
            if op in self.out or op in self.looked_at_now:
                continue
            if not all(b in self.placed_now or b in self.out for b in blockers[op]):
                continue
            self.out.add(op)
            for storage in touched(new.ops[op]):
                if is_created_by(new, storage, op):
                    self.without.add(storage)
                elif new.accessors[storage][0] == op and _is_written(new, storage):
                    return False  # whether it is there from the start may hang on this op
            waiting.update(followers[op])
        return True

    def is_as_it_was(self) -> bool:
        """Whether what was looked at is as it was before the edit, or higher."""
        old, new = self.old, self.new
        blockers_old = old.successors if self.reverse else old.predecessors
        blockers_new = new.successors if self.reverse else new.predecessors
        storages: set[int] = set()
        for op in self.looked_at:
            now = self.now_at[op]
            if now is None or not is_same_op(old, op, new, now):
                return False
            storages.update(touched(old.ops[op]))
            after = blockers_new[now]
            mapped = [self.now_at[b] for b in blockers_old[op]]
            if mapped != list(after) and not set(after).issuperset(mapped):
                return False
        return storages.isdisjoint(self.without) and all(map(self._is_same_storage, storages))

    def _is_same_storage(self, storage: int) -> bool:
        old, new = self.old, self.new
        if old.storages[storage] != new.storages[storage]:
            return False
        if old.from_start[storage] != new.from_start[storage]:
            return False
        before = old.accessors[storage]
        after = [op for op in new.accessors[storage] if op not in self.out]
        if [self.now_at[op] for op in before] == after:
            return True
        if not old.from_start[storage] and self.now_at[before[0]] != after[0]:
            is_seen = before[0] in self.looked_at or after[0] in self.looked_at_now
            if is_seen or not self.reverse:
                return False
        if self.reverse:
            return True  # it is live from the first access that is placed, wherever the others are
        # It dies with the last access, so one that never runs here keeps it alive.
        waiting = sum(op in self.looked_at and op not in self.placed for op in before)
        is_kept = self.looked_at.issuperset(before) or not self.looked_at_now.issuperset(after)
        return is_kept or waiting >= _SEVERAL

    def bound(self) -> int:
        """The old bound, moved by the bytes that are there at rest."""
        side = 1 if self.reverse else 0
        moved = rest_bytes(self.new)[side] - rest_bytes(self.old)[side]
        for storage in {s for op in self.out for s in touched(self.new.ops[op])}:
            place = self.new.storages[storage]
            if self.reverse:
                is_lost = place.output and storage in self.without
            else:
                is_lost = self.new.from_start[storage] and not (place.resident or place.output)
                is_lost = is_lost and self.out.issuperset(self.new.accessors[storage])
            moved -= place.nbytes if is_lost else 0
        return self.below_bytes + moved


def _is_written(problem: OrderProblem, storage: int) -> bool:
    if problem.storages[storage].resident:
        return False
    return any(storage in problem.ops[op].writes for op in problem.accessors[storage])

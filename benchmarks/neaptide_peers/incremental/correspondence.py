"""Which part of an edited problem is as it was before: what an old search knows about it is still true."""

from __future__ import annotations

from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import touched
from neaptide_peers.incremental.edit import Edit


class Correspondence:
    """Ops of an edited problem beside the equal ones before the edit.

    Two ops are equal if they read and write the same storages with the same workspace and takeovers, the same equal
    ops precede them, and each of their storages comes into being at the same place (reversed: is also used by some
    op that is not equal in both problems, or in neither). So where all ops that are not equal have run (reversed:
    have been placed), equal ops that are left do to the bytes what they did before.

    O(size).

    Attributes:
        gone: ops before the edit without an equal one after it.
        fresh: ops after it without an equal one before it.
    """

    def __init__(self, old: OrderProblem, edit: Edit, *, reverse: bool) -> None:
        self._old, self._new, self._now_at = old, edit.problem, edit.now_at
        self._reverse = reverse
        self.gone = {op for op, now in enumerate(edit.now_at) if now is None}
        self.fresh = set(range(edit.problem.op_count)).difference(
            now for now in edit.now_at if now is not None
        )
        self._compare_ops()
        self._compare_storages()
        self._fresh_mask = sum(1 << op for op in self.fresh)
        shifts: dict[int, int] = {}
        for op, now in enumerate(edit.now_at):
            if now is not None and op not in self.gone:
                shifts[now - op] = shifts.get(now - op, 0) | 1 << now
        self._shifts = tuple(shifts.items())

    def before(self, left: int) -> int | None:
        """The ops before the edit that equal a set of ops after it; None if not all of them have an equal one."""
        if left & self._fresh_mask:
            return None
        mapped = 0
        for shift, mask in self._shifts:
            part = left & mask
            mapped |= part >> shift if shift >= 0 else part << -shift
        return mapped

    def _compare_ops(self) -> None:
        old, new = self._old, self._new
        for op, now in enumerate(self._now_at):
            if now is not None and not is_same_op(old, op, new, now):
                self._part(op)
        for op, now in enumerate(self._now_at):
            if now is None or op in self.gone:
                continue
            mapped = [self._now_at[b] for b in old.predecessors[op]]
            if mapped == list(new.predecessors[now]):
                continue
            kept = {self._now_at[b] for b in old.predecessors[op] if b not in self.gone}
            if kept != {b for b in new.predecessors[now] if b not in self.fresh}:
                self._part(op)

    def _compare_storages(self) -> None:
        old, new = self._old, self._new
        waiting = {
            index
            for index, (before, after) in enumerate(zip(old.storages, new.storages, strict=False))
            if before is not after and before != after
        }
        waiting.update(s for op in self.gone for s in touched(old.ops[op]))
        waiting.update(s for op in self.fresh for s in touched(new.ops[op]) if s < len(old.storages))
        while waiting:
            storage = waiting.pop()
            if self._agree(storage):
                continue
            equal = [op for op in old.accessors[storage] if op not in self.gone]
            for op in equal:
                self._part(op)
                waiting.update(touched(old.ops[op]))

    def _agree(self, storage: int) -> bool:
        """Whether equal ops find a storage as it was. True as well where none of them touches it."""
        before, after = self._old.accessors[storage], self._new.accessors[storage]
        if self.gone.issuperset(before):
            return True
        if self._old.storages[storage] != self._new.storages[storage]:
            return False
        from_start = self._old.from_start[storage]
        if from_start != self._new.from_start[storage]:
            return False
        if not from_start and self._now_at[before[0]] != after[0]:
            return before[0] in self.gone and after[0] in self.fresh
        if self._reverse:
            return self.gone.isdisjoint(before) == self.fresh.isdisjoint(after)
        return True

    def _part(self, op: int) -> None:
        self.gone.add(op)
        now = self._now_at[op]
        if now is not None:
            self.fresh.add(now)


def is_same_op(old: OrderProblem, op: int, new: OrderProblem, now: int) -> bool:
    """Whether two ops read and write the same storages with the same workspace and takeovers."""
    before, after = old.ops[op], new.ops[now]
    return before is after or (
        before.reads == after.reads
        and before.writes == after.writes
        and before.workspace == after.workspace
        and before.in_place == after.in_place
    )

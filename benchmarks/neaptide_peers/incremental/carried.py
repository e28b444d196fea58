"""What a proof about an ordering problem still says once the problem has been edited."""

from __future__ import annotations

from collections.abc import Sequence

from neaptide.schedule.order.problem import OrderProblem
from neaptide.schedule.order.sharing import takeovers


def carried_bound(
    old: OrderProblem, bound_bytes: int, edited: OrderProblem, now_at: Sequence[int | None]
) -> int:
    """A lower bound of an edited problem's peak out of one for the problem before the edit. O(size).

    Take any order of the edited problem and leave out the new ops: where every dependency between old ops still
    holds, an order of the old problem remains. A storage that lost accesses may die earlier than it did, so each
    hill is at most the bytes of such storages below the old one; an edit that only adds lowers nothing and the
    bound stays as it is. Storages keep their indices, new ones come after them.

    Args:
        old: before the edit.
        bound_bytes: no order of `old` has a lower peak.
        edited: after it.
        now_at: by op of `old`, its index in `edited`; None where it is gone.

    Returns:
        The bound; 0 where the edit took away something that the argument needs.
    """
    kept = edited.storages[: len(old.storages)]
    if len(now_at) != old.op_count or len(kept) != len(old.storages):
        return 0
    for index, (before, after) in enumerate(zip(old.storages, kept, strict=True)):
        is_weaker = before.resident > after.resident or before.output > after.output
        if after.nbytes < before.nbytes or is_weaker or old.from_start[index] > edited.from_start[index]:
            return 0
    lost: set[int] = set()
    for op, record in enumerate(old.ops):
        place = now_at[op]
        if place is None:
            return 0
        now = edited.ops[place]
        # Ops that only follow their numbers need no second look.
        is_same = now is record or (now.reads, now.writes, now.workspace, now.in_place) == (
            record.reads,
            record.writes,
            record.workspace,
            record.in_place,
        )
        waits_for = [now_at[b] for b in old.predecessors[op]]
        if is_same and not record.in_place and waits_for == list(edited.predecessors[place]):
            continue
        pairs = {(pair.written, pair.read) for pair in takeovers(old, op)}
        # An operand that only the edited problem may take over would make a hill lower than it was.
        fresh = [pair for pair in takeovers(edited, place) if (pair.written, pair.read) not in pairs]
        if now.workspace < record.workspace or fresh or not set(record.writes) <= set(now.writes):
            return 0
        lost |= {
            storage
            for storage in {*record.reads} - {*now.reads, *now.writes}
            if not _is_used_behind(edited, storage, place)
        }
        missing = {b for b in waits_for if b is not None}.difference(edited.predecessors[place])
        if missing and not _all_precede(edited, missing, place):
            return 0
    return max(0, bound_bytes - sum(old.storages[storage].nbytes for storage in lost))


def _is_used_behind(problem: OrderProblem, storage: int, op: int) -> bool:
    """Whether a later access of a storage must run after an op: then it lives past that op in any order."""
    return any(other > op and _all_precede(problem, {op}, other) for other in problem.accessors[storage])


def _all_precede(problem: OrderProblem, wanted: set[int], op: int) -> bool:
    """Whether ops must all run before another. Paths never go back in list order."""
    first, left = min(wanted), set(wanted)
    seen, stack = {op}, [op]
    while stack and left:
        for before in problem.predecessors[stack.pop()]:
            if before >= first and before not in seen:
                seen.add(before)
                left.discard(before)
                stack.append(before)
    return not left

"""The tree of Inductor's memory pool: slots that are split in time and in space.

A slot holds contents that are never live together: buffers, and splits, which put two slots side by side. A buffer
goes into the first slot, lower addresses first, in which nothing is live with it, and what it leaves of that slot is
a new one. It is made for sizes that are known only at run time: no decision compares sums of sizes.
Source: pytorch `torch/_inductor/codegen/memory_planning.py`, `TemporalSplit` and `SpatialSplit` (PR 102625).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

_NEARBY: Final = 8
"""Slots around the lowest buffer that are looked at before the search begins at the top."""


@dataclass(slots=True, eq=False)
class Slot:
    """Bytes that its contents use at different times.

    Attributes:
        offset: first byte.
        size: in bytes.
        side_of: the split that it is the left or right of; None at the top.
        starts: of spans of steps at which a content is live, ascending; spans are disjoint.
        ends: of the same.
        users: contents of the same.
    """

    offset: int
    size: int
    side_of: Content | None = None
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    users: list[Content] = field(default_factory=list)

    def use(self, user: Content, start: int, end: int) -> bool:
        """Add steps of a content, which joins those of its own spans that they touch. O(spans).

        Returns:
            False when the content was live at all of them before.
        """
        at = bisect_right(self.ends, start)
        is_within = at < len(self.ends) and self.starts[at] <= start and end <= self.ends[at]
        if is_within and self.users[at] is user:
            return False
        low = bisect_left(self.ends, start)
        high = bisect_right(self.starts, end)
        # Another content may end or begin exactly there.
        if low < high and self.ends[low] == start and self.users[low] is not user:
            low += 1
        if low < high and self.starts[high - 1] == end and self.users[high - 1] is not user:
            high -= 1
        if low < high:
            start, end = min(start, self.starts[low]), max(end, self.ends[high - 1])
        self.starts[low:high] = [start]
        self.ends[low:high] = [end]
        self.users[low:high] = [user]
        return True


@dataclass(slots=True, eq=False)
class Content:
    """A buffer, or a split.

    Attributes:
        slot: that it lies in.
        sides: left and right slot of a split; None of a buffer.
        number: given by the pool to the contents of its top slots.
    """

    slot: Slot
    sides: tuple[Slot, Slot] | None = None
    number: int = 0


def find_slot(
    met: Content, lowest: Content | None, start: int, end: int, size: int, *, is_last: bool
) -> Slot | None:
    """The first slot inside a content that takes a buffer no larger than those before; None when there is none.

    Lower addresses come first, so the search is at home at the buffer that lies lowest and is live with the new one.
    It begins there, and not at the top of a tree that can be a hundred splits deep. O(slots * log(spans)).

    Args:
        met: the only content of its slot that is live with the buffer.
        lowest: a buffer in it, live with the new one, at the first byte of its slot; None when nothing is there.
        start: of the buffer.
        end: of the buffer.
        size: of the buffer.
        is_last: whether the upper end may grow, so that the last slot takes what is too large for it.
    """
    if met.sides is None:
        return None
    full = None if lowest is None else _lowest_full(met, lowest, start, end)
    if full is None:
        return _first_free(met.sides[0], start, end, size, may_grow=False) or _first_free(
            met.sides[1], start, end, size, may_grow=is_last
        )
    while True:
        split = full.side_of
        assert split is not None
        assert split.sides is not None
        right, may_grow = split.sides[1], is_last and split is met
        if size <= right.size or may_grow:
            at = bisect_right(right.ends, start)
            if at == len(right.ends) or right.starts[at] >= end:
                return right
            if right.users[at].sides is not None:
                found = _first_free(right, start, end, size, may_grow=may_grow)
                if found is not None:
                    return found
        if split is met:
            return None
        full = split.slot


def _lowest_full(met: Content, lowest: Content, start: int, end: int) -> Slot | None:
    """The largest slot around the lowest buffer in which two contents, or a buffer, are live with the new one.

    None when the slots nearby do not tell: for long lifetimes the way down from the top is the shorter one.
    """
    full = lowest.slot
    time = max(start, full.starts[bisect_right(full.ends, start)])
    content = lowest
    for _ in range(_NEARBY):
        if content is met:
            return full
        slot = content.slot
        at = bisect_right(slot.ends, time)
        if slot.starts[at] <= start and end <= slot.ends[at]:
            return full  # nothing else is live here then, nor is it in the slots around this one
        first = bisect_right(slot.ends, start)
        if any(user is not content for user in slot.users[first : bisect_left(slot.starts, end, first)]):
            full = slot
        assert slot.side_of is not None
        content = slot.side_of
    return None


def _first_free(slot: Slot, start: int, end: int, size: int, *, may_grow: bool) -> Slot | None:
    """The slot, or the first inside it, that takes a buffer."""
    pending: list[Slot] = []
    while True:
        # Only the very last slot of all has nothing right of it.
        if size <= slot.size or (may_grow and not pending):
            starts, users = slot.starts, slot.users
            at, count = bisect_right(slot.ends, start), len(starts)
            if at == count or starts[at] >= end:
                return slot
            user = users[at]
            if user.sides is not None:
                at += 1
                while at < count and starts[at] < end and users[at] is user:
                    at += 1
                if at == count or starts[at] >= end:
                    slot, right = user.sides
                    pending.append(right)
                    continue
        if not pending:
            return None
        slot = pending.pop()


def fill_slot(slot: Slot, start: int, end: int, size: int) -> Content:
    """Put a buffer into a slot, split off what it leaves, or widen the slot and everything above. O(depth * spans).

    Returns:
        What was added to the slot: the buffer, or the split with the buffer on its left.
    """
    extra = slot.size - size
    added = Content(slot)
    if extra > 0:
        left = Slot(slot.offset, size, added)
        left.use(Content(left), start, end)
        added.sides = (left, Slot(slot.offset + size, extra, added))
    elif extra < 0:
        _widen(slot, -extra)
    slot.use(added, start, end)
    above = slot.side_of
    while above is not None:
        is_news = above.slot.use(above, start, end)
        if extra < 0:
            # Others in that slot may be larger: a content that has grown before made room for this one.
            above.slot.size = max(above.slot.size, sum(side.size for side in above.sides or ()))
        elif not is_news:
            break  # what is above has heard of these steps with others
        above = above.slot.side_of
    return added


def join_slots(left: Slot, right: Slot) -> Slot:
    """A slot whose one content is a split of two that lie side by side."""
    joined = Slot(left.offset, left.size + right.size)
    split = Content(joined, (left, right))
    for side in (left, right):
        side.side_of = split
        for start, end in zip(side.starts, side.ends, strict=True):
            joined.use(split, start, end)
    return joined


def _widen(slot: Slot, extra: int) -> None:
    """Make a slot larger: every content becomes a split with a slot for the difference above it."""
    wider: dict[int, Content] = {}
    for at, content in enumerate(slot.users):
        if id(content) not in wider:
            split = Content(slot, number=content.number)
            left = Slot(slot.offset, slot.size, split)
            split.sides = (left, Slot(slot.offset + slot.size, extra, split))
            content.slot = left
            wider[id(content)] = split
        split = wider[id(content)]
        assert split.sides is not None
        split.sides[0].use(content, slot.starts[at], slot.ends[at])
        slot.users[at] = split
    slot.size += extra

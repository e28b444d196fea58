"""The tree of Inductor's memory pool: slots that are split in time and in space.

A slot holds contents that are never live together: buffers, and splits, which put two slots side by side. A buffer
goes into the first slot, lower addresses first, in which nothing is live with it, and what it leaves of that slot is
a new one. It is made for sizes that are known only at run time: no decision compares sums of sizes.
Source: pytorch `torch/_inductor/codegen/memory_planning.py`, `TemporalSplit` and `SpatialSplit` (PR 102625).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field


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

    def use(self, user: Content, start: int, end: int) -> None:
        """Add steps of a content, which joins those of its own spans that they touch. O(spans)."""
        low, high = bisect_left(self.ends, start), bisect_right(self.starts, end)
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


def find_slot(met: Content, start: int, end: int, size: int, *, is_last: bool) -> Slot | None:
    """The first slot inside a content that takes a buffer; None when there is none. O(slots * log(spans)).

    Args:
        met: the only content of its slot that is live with the buffer.
        start: of the buffer.
        end: of the buffer.
        size: of the buffer.
        is_last: whether the upper end may grow, so that the last slot takes what is too large for it.
    """
    if met.sides is None:
        return None
    stack = [(met.sides[1], is_last), (met.sides[0], False)]
    while stack:
        slot, may_grow = stack.pop()
        if size > slot.size and not may_grow:
            continue
        at = bisect_right(slot.ends, start)
        until = bisect_left(slot.starts, end, at)
        if at == until:
            return slot
        user = slot.users[at]
        if user.sides is not None and all(slot.users[k] is user for k in range(at + 1, until)):
            stack += ((user.sides[1], may_grow), (user.sides[0], False))
    return None


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
        above.slot.use(above, start, end)
        if extra < 0:
            # Others in that slot may be larger: a content that has grown before made room for this one.
            above.slot.size = max(above.slot.size, sum(side.size for side in above.sides or ()))
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

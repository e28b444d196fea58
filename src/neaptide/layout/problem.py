"""The layout problem: buffers with lifetimes and sizes that must share one arena. Integers only.

A buffer is live on the half-open steps `[start, end)`. Two buffers that are live at the same step must not share a
byte, unless a gap says that one of them leaves those bytes alone at that step. In-place reuse is never a consequence
of lifetimes: whoever wants it merges two storages into one buffer first (`layout.in_place`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from neaptide.errors import LayoutProblemError

Ints: TypeAlias = NDArray[np.int64]
LIMIT: Final = 1 << 62
"""Times, sizes, offsets and the sum of all sizes with padding stay below this, so that no 64-bit sum overflows."""
ANYWHERE: Final = -1
"""The offset of a buffer that is not fixed, in `LayoutProblem.fixed`."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Steps of a lifetime in which a buffer does not use all of its bytes.

    Attributes:
        window: bytes `[low, high)` of the buffer that it still uses; None when it uses none.
    """

    start: int
    end: int
    window: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A rectangle of a buffer: bytes `[low, high)`, counted from its offset, in use on the steps `[start, end)`."""

    start: int
    end: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes with a lifetime.

    Attributes:
        name: unique in its problem.
        alignment: its offset is a multiple of this power of two.
        offset: where it must lie; None for anywhere.
        gaps: ascending, disjoint, inside the lifetime, and not all of it.
        kind: what it is for, in the words of `ir.values.Kind`, for pictures; may be empty.
    """

    name: str
    start: int
    end: int
    nbytes: int
    alignment: int = 1
    offset: int | None = None
    gaps: tuple[Gap, ...] = ()
    kind: str = ""

    def parts(self) -> tuple[Part, ...]:
        """What it uses as rectangles, in order of time; one, the whole, without gaps."""
        if not self.gaps:
            return (Part(self.start, self.end, 0, self.nbytes),)
        parts = []
        now = self.start
        for gap in self.gaps:
            if gap.start > now:
                parts.append(Part(now, gap.start, 0, self.nbytes))
            if gap.window is not None:
                parts.append(Part(gap.start, gap.end, *gap.window))
            now = gap.end
        if now < self.end:
            parts.append(Part(now, self.end, 0, self.nbytes))
        return tuple(parts)


@dataclass(frozen=True, slots=True)
class LayoutProblem:
    """Buffers that share one arena, whose base has the largest of their alignments.

    Attributes:
        fixed: offsets that are given, `ANYWHERE` for the others.
        has_gaps: whether any buffer has gaps; without them a buffer is one rectangle.

    Raises:
        LayoutProblemError: a lifetime, size, alignment, offset, gap or name that cannot be meant, or two fixed
            buffers that overlap.
    """

    buffers: tuple[Buffer, ...]
    name: str = ""
    starts: Ints = field(init=False, repr=False, compare=False)
    ends: Ints = field(init=False, repr=False, compare=False)
    sizes: Ints = field(init=False, repr=False, compare=False)
    alignments: Ints = field(init=False, repr=False, compare=False)
    fixed: Ints = field(init=False, repr=False, compare=False)
    has_gaps: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (fault := first_fault(self.buffers)) is not None:
            raise LayoutProblemError(fault.what, why=fault.why)
        columns = {
            "starts": [b.start for b in self.buffers],
            "ends": [b.end for b in self.buffers],
            "sizes": [b.nbytes for b in self.buffers],
            "alignments": [b.alignment for b in self.buffers],
            "fixed": [ANYWHERE if b.offset is None else b.offset for b in self.buffers],
        }
        for name, column in columns.items():
            array = np.array(column, dtype=np.int64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "has_gaps", any(b.gaps for b in self.buffers))

    def __len__(self) -> int:
        return len(self.buffers)


@dataclass(frozen=True, slots=True)
class Fault:
    """What cannot be meant: the buffer, by its index, and the field that says it."""

    index: int
    field: str
    what: str
    why: str | None = None


def first_fault(buffers: Sequence[Buffer]) -> Fault | None:
    """The first thing that is wrong, by buffer; last, two fixed buffers that overlap. O(n log n) for few overlaps in time."""
    seen: set[str] = set()
    total = 0
    for index, buffer in enumerate(buffers):
        for name, text in _own_faults(buffer):
            return Fault(index, name, f"buffer {buffer.name!r} {text}")
        if buffer.name in seen:
            return Fault(index, "name", f"two buffers have the name {buffer.name!r}")
        seen.add(buffer.name)
        # No placement on top of something else needs more than this: offsets are rounded up to the alignment.
        total += buffer.nbytes + buffer.alignment - 1
        if total >= LIMIT:
            what = f"all buffers together have {total} bytes with their alignment"
            return Fault(index, "nbytes", what, f"the limit is {LIMIT - 1}")
    return next(_clashes(buffers), None)


def _own_faults(buffer: Buffer) -> Iterator[tuple[str, str]]:
    """What is wrong with a buffer alone: the field, and the rest of a sentence."""
    numbers = (buffer.start, buffer.end, buffer.nbytes, buffer.alignment, buffer.offset or 0)
    alignment, offset = buffer.alignment, buffer.offset
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        yield "nbytes", "has a number that is no integer"
    elif buffer.start < 0:
        yield "start", f"starts at {buffer.start}, before step 0"
    elif buffer.end <= buffer.start:
        yield "end", f"has the empty lifetime [{buffer.start}, {buffer.end})"
    elif buffer.end >= LIMIT:
        yield "end", f"ends at {buffer.end}; the limit is {LIMIT - 1}"
    elif not 0 < buffer.nbytes < LIMIT:
        yield "nbytes", f"has {buffer.nbytes} bytes; the limit is {LIMIT - 1}"
    elif alignment <= 0 or alignment & (alignment - 1):
        yield "alignment", f"has the alignment {alignment}, which is no power of two"
    elif alignment >= LIMIT:
        yield "alignment", f"has the alignment {alignment}; the limit is {LIMIT - 1}"
    elif offset is not None and offset < 0:
        yield "offset", f"is fixed at the negative offset {offset}"
    elif offset is not None and offset + buffer.nbytes >= LIMIT:
        yield "offset", f"is fixed at the offset {offset}, too far up"
    elif offset is not None and offset % alignment:
        yield "offset", f"is fixed at the offset {offset}, which is no multiple of its alignment {alignment}"
    else:
        yield from (("gaps", text) for text in _gap_faults(buffer))


def _gap_faults(buffer: Buffer) -> Iterator[str]:
    now = buffer.start
    used = False
    for gap in buffer.gaps:
        where = f"[{gap.start}, {gap.end})"
        if gap.end <= gap.start:
            yield f"has the empty gap {where}"
        if gap.start < now or gap.end > buffer.end:
            yield f"has the gap {where}, which is outside its lifetime, out of order or overlaps another gap"
        if gap.window is not None and not 0 <= gap.window[0] < gap.window[1] <= buffer.nbytes:
            yield f"has the window {gap.window} in the gap {where}, which is empty or outside its bytes"
        used = used or gap.start > now or gap.window is not None
        now = gap.end
    if buffer.gaps and not used and now == buffer.end:
        yield "is never used: gaps fill its lifetime"


def _clashes(buffers: Sequence[Buffer]) -> Iterator[Fault]:
    """Two fixed buffers that use the same byte at the same step."""
    fixed = [(index, buffer) for index, buffer in enumerate(buffers) if buffer.offset is not None]
    parts = sorted(
        ((part, index) for index, buffer in fixed for part in buffer.parts()), key=lambda pair: pair[0].start
    )
    live: list[tuple[Part, int]] = []
    for part, index in parts:
        live = [pair for pair in live if pair[0].end > part.start]
        low = buffers[index].offset or 0
        for other_part, other in live:
            other_low = buffers[other].offset or 0
            if other != index and (
                low + part.low < other_low + other_part.high and other_low + other_part.low < low + part.high
            ):
                names = f"{buffers[other].name!r} and {buffers[index].name!r}"
                yield Fault(
                    max(index, other),
                    "offset",
                    f"the fixed buffers {names} overlap",
                    f"both are live at step {part.start} and their bytes cross",
                )
        live.append((part, index))

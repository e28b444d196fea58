"""The layout problem: buffers with lifetimes and sizes that must share one arena. Integers only.

A buffer is live on the half-open steps `[start, end)`. Two buffers that are live at the same step must not share a
byte, unless a gap says that one of them leaves those bytes alone at that step. In-place reuse is never a consequence
of lifetimes: whoever wants it merges two storages into one buffer first (`layout.in_place`).
"""

from __future__ import annotations

from collections.abc import Iterator
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
        _check(self.buffers)
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


def _check(buffers: tuple[Buffer, ...]) -> None:
    seen: set[str] = set()
    for buffer in buffers:
        for fault in _faults(buffer):
            raise LayoutProblemError(f"buffer {buffer.name!r} {fault}")
        if buffer.name in seen:
            raise LayoutProblemError(f"two buffers have the name {buffer.name!r}")
        seen.add(buffer.name)
    # No placement on top of something else needs more than this: offsets are rounded up to the alignment.
    total = sum(buffer.nbytes + buffer.alignment - 1 for buffer in buffers)
    if total >= LIMIT:
        raise LayoutProblemError(
            f"all buffers together have {total} bytes with their alignment", why=f"the limit is {LIMIT - 1}"
        )
    _check_fixed([buffer for buffer in buffers if buffer.offset is not None])


def _faults(buffer: Buffer) -> Iterator[str]:
    """What is wrong with a buffer, as the rest of a sentence."""
    numbers = (buffer.start, buffer.end, buffer.nbytes, buffer.alignment, buffer.offset or 0)
    if any(isinstance(number, bool) or not isinstance(number, int) for number in numbers):
        yield "has a number that is no integer"
    elif buffer.start < 0:
        yield f"starts at {buffer.start}, before step 0"
    elif buffer.end <= buffer.start:
        yield f"has the empty lifetime [{buffer.start}, {buffer.end})"
    elif buffer.end >= LIMIT:
        yield f"ends at {buffer.end}; the limit is {LIMIT - 1}"
    elif buffer.nbytes <= 0:
        yield f"has {buffer.nbytes} bytes"
    elif buffer.nbytes >= LIMIT:
        yield f"has {buffer.nbytes} bytes; the limit is {LIMIT - 1}"
    elif buffer.alignment <= 0 or buffer.alignment & (buffer.alignment - 1):
        yield f"has the alignment {buffer.alignment}, which is no power of two"
    elif buffer.alignment >= LIMIT:
        yield f"has the alignment {buffer.alignment}; the limit is {LIMIT - 1}"
    elif buffer.offset is not None and buffer.offset < 0:
        yield f"is fixed at the negative offset {buffer.offset}"
    elif buffer.offset is not None and buffer.offset + buffer.nbytes >= LIMIT:
        yield f"is fixed at the offset {buffer.offset}, too far up"
    elif buffer.offset is not None and buffer.offset % buffer.alignment:
        yield f"is fixed at the offset {buffer.offset}, which is no multiple of its alignment {buffer.alignment}"
    else:
        yield from _gap_faults(buffer)


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


def _check_fixed(buffers: list[Buffer]) -> None:
    """Fixed buffers must not clash. O(n log n) for few overlaps in time."""
    parts = sorted(
        ((part, buffer) for buffer in buffers for part in buffer.parts()), key=lambda pair: pair[0].start
    )
    alive: list[tuple[Part, Buffer]] = []
    for part, buffer in parts:
        alive = [pair for pair in alive if pair[0].end > part.start]
        assert buffer.offset is not None
        for other_part, other in alive:
            assert other.offset is not None
            if other is not buffer and (
                buffer.offset + part.low < other.offset + other_part.high
                and other.offset + other_part.low < buffer.offset + part.high
            ):
                raise LayoutProblemError(
                    f"the fixed buffers {other.name!r} and {buffer.name!r} overlap",
                    why=f"both are live at step {part.start} and their bytes cross",
                )
        alive.append((part, buffer))

"""The checker of layouts: plain Python, every pair that is live together, no code shared with any solver."""

from __future__ import annotations

import heapq

from neaptide.errors import VerifyError
from neaptide.layout.problem import LayoutProblem
from neaptide.layout.result import Layout


def check_layout(problem: LayoutProblem, layout: Layout, *, capacity_bytes: int | None = None) -> None:
    """Make sure that a layout is legal: offsets, alignments, fixed places, arena, and no byte used twice at a step.

    O(sum over parts of the parts live with it), with everything read from the buffers themselves.

    Raises:
        VerifyError: names the buffer, or the two buffers and a step at which they clash.
    """
    if len(layout.offsets) != len(problem.buffers):
        raise VerifyError(f"the layout has {len(layout.offsets)} offsets for {len(problem.buffers)} buffers")
    top = 0
    for buffer, offset in zip(problem.buffers, layout.offsets, strict=True):
        if offset < 0 or offset % buffer.alignment:
            raise VerifyError(f"buffer {buffer.name!r} lies at {offset}, its alignment is {buffer.alignment}")
        if buffer.offset is not None and offset != buffer.offset:
            raise VerifyError(f"buffer {buffer.name!r} lies at {offset}, but is fixed at {buffer.offset}")
        top = max(top, offset + buffer.nbytes)
    if layout.arena_bytes != top:
        raise VerifyError(f"the arena is said to have {layout.arena_bytes} bytes, its top is at {top}")
    if capacity_bytes is not None and top > capacity_bytes:
        raise VerifyError(f"the arena has {top} bytes, more than the capacity of {capacity_bytes}")
    _check_clashes(problem, layout)


def _check_clashes(problem: LayoutProblem, layout: Layout) -> None:
    """Sweep over time; what begins is compared with everything that has not ended."""
    rectangles = []
    for index, (buffer, offset) in enumerate(zip(problem.buffers, layout.offsets, strict=True)):
        begin = buffer.start
        pieces = []
        for gap in buffer.gaps:
            pieces.append((begin, gap.start, 0, buffer.nbytes))
            if gap.window is not None:
                pieces.append((gap.start, gap.end, gap.window[0], gap.window[1]))
            begin = gap.end
        pieces.append((begin, buffer.end, 0, buffer.nbytes))
        rectangles += [
            (start, end, offset + low, offset + high, index)
            for start, end, low, high in pieces
            if start < end
        ]
    rectangles.sort()
    live: dict[int, tuple[int, int, int]] = {}
    ending: list[tuple[int, int]] = []
    for number, (start, end, low, high, index) in enumerate(rectangles):
        while ending and ending[0][0] <= start:
            live.pop(heapq.heappop(ending)[1])
        for other_low, other_high, other in live.values():
            if low < other_high and other_low < high and other != index:
                names = f"{problem.buffers[other].name!r} and {problem.buffers[index].name!r}"
                raise VerifyError(
                    f"the buffers {names} clash at step {start}",
                    why=f"bytes [{other_low}, {other_high}) and [{low}, {high}) are in use together",
                )
        live[number] = (low, high, index)
        heapq.heappush(ending, (end, number))

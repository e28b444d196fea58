"""Small layout problems and their optimum by trying everything; shares no code with the package's solvers."""

from __future__ import annotations

import random
from itertools import permutations

from neaptide.errors import LayoutProblemError
from neaptide.layout.problem import Buffer, Gap, LayoutProblem

NINE = ((0, 1, 3), (0, 2, 3), (0, 5, 2), (1, 4, 1), (1, 6, 2), (3, 6, 1), (3, 6, 1), (4, 5, 2), (5, 6, 3))
"""Nine buffers (start, end, size) with 8 live bytes whose smallest arena is 9."""


def problem_of(*rows: tuple[int, int, int], alignment: int = 1) -> LayoutProblem:
    """A plain problem from rows (start, end, size)."""
    return LayoutProblem(tuple(Buffer(f"b{i}", *row, alignment) for i, row in enumerate(rows)))


def random_plain(rng: random.Random, most: int, *, steps: int = 6, size: int = 4, alignment: int = 1):
    count = rng.randint(1, most)
    rows = []
    for _ in range(count):
        start = rng.randrange(steps)
        rows.append((start, rng.randint(start + 1, steps), rng.randint(1, size)))
    return problem_of(*rows, alignment=alignment)


def random_rich(
    rng: random.Random, most: int, *, fixed=True, gaps=True, alignments=(1, 2, 4)
) -> LayoutProblem:
    """Fixed offsets, mixed alignments and gaps, on a few steps with small sizes."""
    while True:
        buffers: list[Buffer] = []
        for index in range(rng.randint(1, most)):
            start = rng.randrange(5)
            end = rng.randint(start + 1, 5)
            size = rng.randint(1, 4)
            alignment = rng.choice(alignments)
            offset = alignment * rng.randrange(3) if fixed and rng.random() < 0.25 else None
            found: tuple[Gap, ...] = ()
            if gaps and end - start > 1 and rng.random() < 0.5:
                begin = rng.randrange(start, end - 1)
                low = rng.randrange(size)
                window = (low, rng.randint(low + 1, size)) if rng.random() < 0.6 else None
                found = (Gap(begin, rng.randint(begin + 1, end - (begin == start)), window),)
            buffers.append(Buffer(f"b{index}", start, end, size, alignment, offset, found))
        try:
            return LayoutProblem(tuple(buffers))
        except LayoutProblemError as error:
            # Two fixed buffers that clash: draw again.
            if "overlap" not in str(error):
                raise


def smallest_arena_by_order(problem: LayoutProblem) -> int:
    """Of a plain problem: every order, each buffer at its lowest offset; that covers every settled layout."""
    buffers = problem.buffers
    best = sum(-(-b.nbytes // b.alignment) * b.alignment for b in buffers)
    meets = [[a.start < b.end and b.start < a.end for b in buffers] for a in buffers]
    for order in permutations(range(len(buffers))):
        offsets: dict[int, int] = {}
        top = 0
        for index in order:
            size, alignment = buffers[index].nbytes, buffers[index].alignment
            taken = sorted((offsets[j], offsets[j] + buffers[j].nbytes) for j in offsets if meets[index][j])
            offset = 0
            for low, high in taken:
                if offset + size <= low:
                    break
                offset = max(offset, -(-high // alignment) * alignment)
            offsets[index] = offset
            top = max(top, offset + size)
            if top >= best:
                break
        best = min(best, top)
    return best


def fits_by_offsets(problem: LayoutProblem, capacity: int) -> bool:
    """Of any problem: every offset of every buffer."""
    cells = [
        {(step, byte) for part in b.parts() for step in range(part.start, part.end) for byte in range(part.low, part.high)}
        for b in problem.buffers
    ]  # fmt: skip

    def place(index: int, taken: frozenset[tuple[int, int]]) -> bool:
        if index == len(problem):
            return True
        b = problem.buffers[index]
        offsets = range(0, capacity - b.nbytes + 1, b.alignment) if b.offset is None else (b.offset,)
        for offset in offsets:
            if offset + b.nbytes > capacity:
                continue
            here = {(step, byte + offset) for step, byte in cells[index]}
            if not here & taken and place(index + 1, taken | here):
                return True
        return False

    return place(0, frozenset())


def smallest_arena_by_offsets(problem: LayoutProblem) -> int:
    capacity = 0
    while not fits_by_offsets(problem, capacity):
        capacity += 1
    return capacity

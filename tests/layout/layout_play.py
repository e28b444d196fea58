"""What the layout tests share: random problems, renumbered ones, and the sum that no rule may exceed."""

from __future__ import annotations

import random

from neaptide.layout.problem import Buffer, Gap, LayoutProblem

ALIGNMENTS = (1, 2, 4, 8)


def random_problem(seed, most=12, *, steps=None, largest=12, alignments=ALIGNMENTS, fixed=True, gaps=True):
    """Up to `most` buffers; one in six is fixed and one in four has gaps, where that is asked for."""
    rng = random.Random(seed)
    count = rng.randint(1, most)
    steps = steps or rng.choice((4, 10, count + 2, 4 * count))
    buffers: list[Buffer] = []
    for index in range(count):
        start = rng.randrange(steps)
        end = rng.randint(start + 1, steps)
        nbytes = rng.choice((rng.randint(1, largest), rng.randint(1, 3)))
        alignment = rng.choice(alignments)
        holes = random_gaps(rng, start, end, nbytes) if gaps and rng.random() < 1 / 4 else ()
        offset = None
        if fixed and rng.random() < 1 / 6:
            offset = _free_place(rng, buffers, start, end, nbytes, alignment)
        buffers.append(Buffer(f"b{index}", start, end, nbytes, alignment, offset, holes))
    return LayoutProblem(tuple(buffers), f"seed {seed}")


def random_gaps(rng, start, end, nbytes):
    """Ascending gaps, some with a window, that leave something in use."""
    gaps = []
    now = start
    while now < end and len(gaps) < 3:
        begin = rng.randint(now, end)
        stop = rng.randint(begin, end)
        if stop > begin:
            low = rng.randrange(nbytes)
            window = (low, rng.randint(low + 1, nbytes)) if rng.random() < 1 / 2 else None
            gaps.append(Gap(begin, stop, window))
        now = stop + rng.randint(0, 1)
    unused = sum(gap.end - gap.start for gap in gaps if gap.window is None)
    return tuple(gaps) if unused < end - start else ()


def _free_place(rng, buffers, start, end, nbytes, alignment):
    """Some offset that no other fixed buffer is in the way of."""
    there = [b for b in buffers if b.offset is not None and b.start < end and b.end > start]
    offset = rng.randint(0, 30) // alignment * alignment
    for b in sorted(there, key=lambda b: b.offset):
        if b.offset < offset + nbytes and offset < b.offset + b.nbytes:
            offset = -(-(b.offset + b.nbytes) // alignment) * alignment
    return offset


def renumbered(problem, seed):
    """The same buffers in another order, with other names."""
    buffers = list(problem.buffers)
    random.Random(seed).shuffle(buffers)
    return LayoutProblem(
        tuple(
            Buffer(f"r{index}", b.start, b.end, b.nbytes, b.alignment, b.offset, b.gaps)
            for index, b in enumerate(buffers)
        )
    )


def nothing_shared(problem):
    """Bytes of all buffers one above the other, padding included, above whatever is fixed."""
    base = max((b.offset + b.nbytes for b in problem.buffers if b.offset is not None), default=0)
    largest = max((b.alignment for b in problem.buffers), default=1)
    return base + largest - 1 + sum(-(-b.nbytes // largest) * largest for b in problem.buffers)


def from_rows(rows):
    """A problem of rows of `neaptide_corpus.layouts`."""
    return LayoutProblem(tuple(Buffer(r.name, r.start, r.end, r.nbytes, r.alignment) for r in rows))

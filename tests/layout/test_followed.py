"""A layout in the order of addresses of another one is never above what lies on each other there."""

from __future__ import annotations

import random

import numpy as np

from layout_play import random_problem
from neaptide.layout.placement import follow, place_by_size
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.validate import check_layout
from together import together

ALIGNMENT = 4


def resized(problem, sizes):
    buffers = [
        Buffer(b.name, b.start, b.end, size, ALIGNMENT)
        for b, size in zip(problem.buffers, sizes, strict=True)
    ]
    return LayoutProblem(tuple(buffers))


def stacked(problem, addresses):
    """By buffer, the largest sum of aligned sizes of buffers below it, each on the next; the slow way."""
    heights = {}
    for n in sorted(range(len(problem)), key=lambda n: addresses[n]):
        own = problem.buffers[n]
        below = [
            m for m in heights if problem.buffers[m].start < own.end and own.start < problem.buffers[m].end
        ]
        heights[n] = max(
            (heights[m] + -(-problem.buffers[m].nbytes // ALIGNMENT) * ALIGNMENT for m in below), default=0
        )
    return heights


@together("seed", range(60))
def test_no_buffer_lies_above_the_sum_of_those_that_were_below_it(seed):
    rng = random.Random(seed)
    drawn = random_problem(seed, most=20, fixed=False, gaps=False)
    before = resized(drawn, [b.nbytes for b in drawn.buffers])
    known = place_by_size(before)
    addresses = np.array(known.offsets, dtype=np.int64)
    other = resized(drawn, [rng.randint(1, 40) for _ in drawn.buffers])
    found = follow(other, addresses)
    check_layout(other, found)
    heights = stacked(other, known.offsets)
    assert all(offset <= heights[n] for n, offset in enumerate(found.offsets))
    assert follow(before, addresses).arena_bytes <= known.arena_bytes
    # Four times the aligned sizes, so that nothing is rounded anew.
    larger = resized(drawn, [-(-b.nbytes // ALIGNMENT) * 4 * ALIGNMENT for b in drawn.buffers])
    assert follow(larger, addresses).arena_bytes <= 4 * (known.arena_bytes + ALIGNMENT - 1)

"""Bytes that are missing are enough once they are there."""

import random
from dataclasses import replace

from neaptide.layout.pools.missing import missing_bytes
from neaptide.layout.pools.placing import place_in_spaces
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import Buffer, LayoutProblem

SPACES = (MemorySpace("sram", 64, 1, 16), MemorySpace("psram", 96, 2, 16))


def problem_of(sizes):
    return LayoutProblem(tuple(Buffer(f"b{k}", k, k + 3, nbytes) for k, nbytes in enumerate(sizes)))


def test_one_buffer_too_many():
    # Three of 64 bytes live together: one in sram, two in psram, which has room for one and a half.
    assert missing_bytes(problem_of([64] * 3), SPACES) == 32
    assert missing_bytes(problem_of([64] * 2), SPACES) == 0
    assert missing_bytes(problem_of([200]), SPACES) == 104
    assert missing_bytes(problem_of([200]), (SPACES[0], MemorySpace("psram", None, 2))) == 0


def test_what_is_missing_is_enough():
    draw = random.Random(0)
    for _ in range(40):
        problem = problem_of([draw.randint(1, 120) for _ in range(draw.randint(1, 7))])
        more = SPACES[1].capacity_bytes + missing_bytes(problem, SPACES)
        spaces = (SPACES[0], replace(SPACES[1], capacity_bytes=more))
        assert place_in_spaces(PooledProblem(problem, spaces)).value is not None

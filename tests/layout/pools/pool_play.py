"""What the tests of several memory spaces share: random problems, and every choice and order tried."""

from __future__ import annotations

import itertools
import random

from layout.layout_play import random_problem
from neaptide.errors import LayoutProblemError
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout

KIB = 1 << 10


def microcontroller():
    """An image network in int8: activations of 16 layers, weights streamed in, 256 KiB of SRAM beside PSRAM."""
    sides = (96, 96, 48, 48, 48, 24, 24, 24, 12, 12, 12, 12, 6, 6, 6, 1)
    widths = (8, 16, 24, 24, 48, 48, 96, 96, 96, 128, 128, 192, 192, 256, 256, 256)
    buffers = []
    for step, (side, width) in enumerate(zip(sides, widths, strict=True)):
        end = step + 5 if step % 4 == 1 else step + 2  # every fourth is added again three layers on
        buffers.append(Buffer(f"act{step}", step, end, side * side * width))
        buffers.append(Buffer(f"weight{step}", step, step + 1, 9 * width * widths[max(0, step - 1)]))
    accesses = {f"act{step}": 10 for step in range(16)} | {f"weight{step}": 2 for step in range(16)}
    spaces = (MemorySpace("SRAM", 256 * KIB, 1, 16), MemorySpace("PSRAM", 8192 * KIB, 12, 16))
    return PooledProblem(LayoutProblem(tuple(buffers)), spaces, accesses)


def random_pools(seed, most=6, *, gaps=False, fixed=False, arenas=False):
    """Two or three spaces, the last with much room, and buffers of which some are pinned; or None if one fits none."""
    rng = random.Random(seed)
    problem = random_problem(seed, most, gaps=gaps, fixed=fixed)
    largest = max(b.nbytes + (b.offset or 0) for b in problem.buffers)
    spaces = [MemorySpace("fast", rng.randint(4, 24), 1, rng.choice((1, 1, 4)))]
    if rng.random() < 0.4:
        most_bytes = rng.choice((None, 12)) if arenas else None
        spaces.append(MemorySpace("middle", rng.randint(8, 30), rng.randint(1, 4), 2, most_bytes))
    room = rng.choice((None, 30, 200))
    spaces.append(MemorySpace("slow", room, rng.randint(3, 9), 1, max(16, largest) if arenas else None))
    names = [space.name for space in spaces]
    accesses = {b.name: rng.randint(0, 4) for b in problem.buffers if rng.random() < 0.8}
    allowed = {b.name: rng.sample(names, rng.randint(1, 2)) for b in problem.buffers if rng.random() < 0.3}
    allowed |= {b.name: [rng.choice(names)] for b in problem.buffers if b.offset is not None}
    try:
        return PooledProblem(problem, tuple(spaces), accesses, allowed)
    except LayoutProblemError:
        return None


def cheapest(pooled):
    """The least cost of all, by trying everything; None if there is no layout. Without gaps and fixed buffers."""
    best = None
    fits = {}
    for chosen in itertools.product(*pooled.choices):
        cost = sum(costs[space] for costs, space in zip(pooled.costs, chosen, strict=True))
        if best is not None and cost >= best:
            continue
        for space in range(len(pooled.spaces)):
            members = tuple(index for index, at in enumerate(chosen) if at == space)
            if (space, members) not in fits:
                fits[space, members] = _fits(pooled, space, members)
            if not fits[space, members]:
                break
        else:
            best = cost
    return best


def _fits(pooled, space, members):
    """Whether some order, each buffer at its lowest free place, stays within the capacity."""
    capacity = pooled.spaces[space].capacity_bytes
    return capacity is None or any(
        _top(pooled, space, order) <= capacity for order in itertools.permutations(members)
    )


def _top(pooled, space, order):
    placed = []
    for index in order:
        buffer = pooled.problem.buffers[index]
        step = max(buffer.alignment, pooled.spaces[space].alignment)
        offset = 0
        while any(
            b.start < buffer.end
            and buffer.start < b.end
            and at < offset + buffer.nbytes
            and offset < at + b.nbytes
            for b, at in placed
        ):
            offset += step
        placed.append((buffer, offset))
    return max((at + b.nbytes for b, at in placed), default=0)


def check_packing(problem, packing):
    """Make sure that every arena is a legal layout of its buffers.

    Raises:
        VerifyError: one is not.
    """
    for arena, size in enumerate(packing.arena_bytes):
        members = [index for index, number in enumerate(packing.arenas) if number == arena]
        part = LayoutProblem(tuple(problem.buffers[index] for index in members))
        check_layout(part, Layout(tuple(packing.offsets[index] for index in members), size))

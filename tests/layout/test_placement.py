"""Placement: fits, orders, and layouts that follow the addresses of another."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout.layout_play import nothing_shared, random_problem
from neaptide.errors import LayoutProblemError
from neaptide.layout.placement import Fit, Shelf, follow, place, place_below, place_by_size
from neaptide.layout.problem import LIMIT, Buffer, Gap, LayoutProblem
from neaptide.layout.validate import check_layout
from support.together import together

SEEDS = st.integers(0, 10**9)


def cells(buffer, offset):
    """Every (step, byte) that a buffer uses."""
    return {
        (step, offset + byte)
        for part in buffer.parts()
        for step in range(part.start, part.end)
        for byte in range(part.low, part.high)
    }


def place_by_trying(problem, order, fit):
    """Every offset tried byte by byte: the rules by their words."""
    offsets = {i: b.offset for i, b in enumerate(problem.buffers) if b.offset is not None}
    for index in order:
        if index in offsets:
            continue
        buffer = problem.buffers[index]
        used = set().union(*(cells(problem.buffers[i], at) for i, at in offsets.items()))
        top = max((byte for _, byte in used), default=-1) + 1 + buffer.alignment
        free = [not cells(buffer, at) & used for at in range(top + buffer.nbytes)]
        runs = []  # of free offsets, as first and last
        for at, is_free in enumerate(free):
            if is_free and at and free[at - 1]:
                runs[-1][1] = at
            elif is_free:
                runs.append([at, at])
        runs[-1][1] = LIMIT
        aligned = [(-(-first // buffer.alignment) * buffer.alignment, last) for first, last in runs]
        holes = [(last - first, first) for first, last in aligned if first <= last]
        if fit is Fit.FIRST:
            offsets[index] = min(first for _, first in holes)
        elif fit is Fit.BEST:
            # The run without an end is the top: taken when there is no hole.
            offsets[index] = min(holes[:-1], default=holes[-1])[1]
        else:
            offsets[index] = holes[-1][1]
    return tuple(offsets[i] for i in range(len(problem)))


@given(SEEDS, st.sampled_from(Fit))
def test_every_fit_is_the_one_found_by_trying_all_offsets(seed, fit):
    for step in range(8):
        problem = random_problem(f"{seed}.{step}", steps=6)
        order = list(range(len(problem)))
        random.Random(seed).shuffle(order)
        layout = place(problem, order, fit)
        assert layout.offsets == place_by_trying(problem, order, fit)
        check_layout(problem, layout)


@given(SEEDS, st.sampled_from(Fit), st.booleans(), st.booleans())
def test_layouts_of_up_to_200_buffers_are_legal(seed, fit, fixed, gaps):
    problem = random_problem(seed, 200, fixed=fixed, gaps=gaps, largest=1 << 40)
    order = list(range(len(problem)))
    random.Random(seed).shuffle(order)
    layout = place(problem, order, fit)
    check_layout(problem, layout)
    assert layout.arena_bytes <= nothing_shared(problem)


def test_the_three_fits_differ_as_they_say():
    buffers = (
        Buffer("low", 0, 9, 1, offset=0),
        Buffer("wide hole above", 0, 9, 1, offset=4),
        Buffer("tight hole above", 0, 9, 1, offset=7),
        Buffer("x", 3, 4, 2),
    )
    # Free below the fourth: bytes 1 to 3, and 5 to 6.
    problem = LayoutProblem(buffers)
    offsets = {fit: place(problem, range(4), fit).offsets[3] for fit in Fit}
    assert offsets == {Fit.FIRST: 1, Fit.BEST: 5, Fit.STACK: 8}


def test_a_buffer_moves_into_the_gap_of_another():
    holder = Buffer("holder", 0, 6, 10, gaps=(Gap(2, 4, window=(6, 10)),))
    problem = LayoutProblem((holder, Buffer("guest", 2, 4, 6)))
    assert place(problem, [0, 1], Fit.FIRST).offsets == (0, 0)
    # The other way round its window must clear the guest, and the rest of it is alone.
    assert place(problem, [1, 0], Fit.FIRST).offsets == (0, 0)


def test_no_buffers_make_an_empty_arena():
    assert place(LayoutProblem(()), [], Fit.BEST).arena_bytes == 0


@together("order", [[0], [0, 0], [0, 2], [1, 0, 1]])
def test_an_order_that_is_none_is_refused(order):
    problem = LayoutProblem((Buffer("a", 0, 1, 1), Buffer("b", 0, 1, 1)))
    with pytest.raises(LayoutProblemError, match="each of the 2 buffers once"):
        place(problem, order, Fit.FIRST)


def test_a_pass_gives_up_exactly_when_it_reaches_the_limit():
    problem = LayoutProblem((Buffer("a", 0, 1, 5), Buffer("b", 0, 1, 6)))
    assert place_below(problem, [0, 1], Fit.FIRST, 11) is None
    assert place_below(problem, [0, 1], Fit.FIRST, 12) == place(problem, [0, 1], Fit.FIRST)


def test_the_largest_sizes_and_alignments_do_not_overflow():
    sizes = (Buffer("a", 0, 2, LIMIT // 4), Buffer("b", 0, 2, LIMIT // 4), Buffer("c", 1, 3, LIMIT // 4))
    assert place(LayoutProblem(sizes), [0, 1, 2], Fit.BEST).arena_bytes == 3 * (LIMIT // 4)
    padded = tuple(Buffer(f"p{k}", 0, 1, 1, LIMIT // 4) for k in range(3))
    assert place(LayoutProblem(padded), [2, 1, 0], Fit.FIRST).offsets == (LIMIT // 2, LIMIT // 4, 0)
    with pytest.raises(LayoutProblemError, match="with their alignment"):
        LayoutProblem((*padded, Buffer("one more", 0, 1, 1, LIMIT // 4)))


def test_many_buffers_need_longer_ranks_than_16_bits():
    shelf = Shelf(LayoutProblem(tuple(Buffer(f"b{k}", k, k + 2, 1) for k in range(17_000))))
    for index in (16_997, 16_999, 16_998):
        shelf.put(index, shelf.find(index, Fit.FIRST))
    assert shelf.offsets[-3:] == [0, 1, 0]


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

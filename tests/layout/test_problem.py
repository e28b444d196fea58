"""Layout problems: what can be meant, bounds from below, and the checker of layouts."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout.layout_play import random_problem
from neaptide.errors import LayoutProblemError, VerifyError
from neaptide.layout.bounds import arena_lower_bound, bytes_live_at, live_bytes
from neaptide.layout.problem import LIMIT, Buffer, Gap, LayoutProblem, Part
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from support.together import together


def test_without_gaps_a_buffer_is_one_rectangle():
    assert Buffer("a", 2, 5, 7).parts() == (Part(2, 5, 0, 7),)


def test_gaps_cut_a_buffer_into_parts():
    buffer = Buffer("a", 0, 10, 8, gaps=(Gap(2, 4), Gap(4, 6, (1, 3))))
    assert buffer.parts() == (Part(0, 2, 0, 8), Part(4, 6, 1, 3), Part(6, 10, 0, 8))


def test_a_gap_at_the_end_leaves_no_empty_part():
    assert Buffer("a", 0, 4, 8, gaps=(Gap(2, 4, (0, 1)),)).parts() == (Part(0, 2, 0, 8), Part(2, 4, 0, 1))


def test_arrays_hold_what_the_buffers_say():
    problem = LayoutProblem((Buffer("a", 0, 1, 3, 4), Buffer("b", 1, 2, LIMIT // 2, offset=8)))
    assert problem.sizes.tolist() == [3, LIMIT // 2]
    assert problem.alignments.tolist() == [4, 1]
    assert problem.fixed.tolist() == [-1, 8]
    assert not problem.sizes.flags.writeable


@together(
    ("buffers", "words"),
    [
        ([Buffer("a", 0, 0, 1)], "empty lifetime"),
        ([Buffer("a", 3, 2, 1)], "empty lifetime"),
        ([Buffer("a", -1, 2, 1)], "before step 0"),
        ([Buffer("a", 0, LIMIT, 1)], "ends at"),
        ([Buffer("a", 0, 1, 0)], "has 0 bytes"),
        ([Buffer("a", 0, 1, -4)], "has -4 bytes"),
        ([Buffer("a", 0, 1, LIMIT)], "the limit is"),
        ([Buffer("a", 0, 1, LIMIT - 1), Buffer("b", 5, 6, 1)], "all buffers together"),
        ([Buffer("a", 0, 1, 1, 3)], "no power of two"),
        ([Buffer("a", 0, 1, 1, 0)], "no power of two"),
        ([Buffer("a", 0, 1, 1, offset=-1)], "negative offset"),
        ([Buffer("a", 0, 1, 1, 4, offset=6)], "no multiple"),
        ([Buffer("a", 0, 1, 2, offset=LIMIT - 1)], "too far up"),
        ([Buffer("a", 0, 1, 1.5)], "no integer"),
        ([Buffer("a", 0, True, 1)], "no integer"),
        ([Buffer("a", 0, 1, 1), Buffer("a", 1, 2, 1)], "two buffers have the name 'a'"),
        ([Buffer("a", 0, 2, 4, offset=0), Buffer("b", 1, 3, 4, offset=3)], "overlap"),
        ([Buffer("a", 0, 4, 4, gaps=(Gap(2, 2),))], "empty gap"),
        ([Buffer("a", 0, 4, 4, gaps=(Gap(2, 5),))], "outside its lifetime"),
        ([Buffer("a", 0, 9, 4, gaps=(Gap(2, 5), Gap(4, 6)))], "overlaps another gap"),
        ([Buffer("a", 0, 9, 4, gaps=(Gap(2, 5, (3, 5)),))], "outside its bytes"),
        ([Buffer("a", 0, 4, 4, gaps=(Gap(0, 4),))], "never used"),
    ],
)
def test_what_cannot_be_meant_is_refused(buffers, words):
    with pytest.raises(LayoutProblemError, match=words):
        LayoutProblem(tuple(buffers))


def test_fixed_buffers_may_share_bytes_at_other_times_or_in_a_gap():
    LayoutProblem((Buffer("a", 0, 2, 4, offset=0), Buffer("b", 2, 3, 4, offset=0)))
    LayoutProblem((Buffer("a", 0, 9, 4, offset=0, gaps=(Gap(3, 6, (0, 2)),)), Buffer("b", 4, 5, 2, offset=2)))


@given(st.integers(0, 10**6))
def test_live_bytes_are_those_of_a_count_step_by_step(seed):
    problem = random_problem(seed, 6, steps=12, fixed=False)
    counted = [
        sum(p.high - p.low for b in problem.buffers for p in b.parts() if p.start <= step < p.end)
        for step in range(12)
    ]
    assert live_bytes(problem) == max(counted)
    points, total = bytes_live_at(problem)
    steps = dict(zip(points.tolist(), total.tolist(), strict=True))
    now = 0
    for step, expected in enumerate(counted):
        now = steps.get(step, now)
        assert now == expected


def stacked(problem, indices):
    """Bytes that buffers need in the order given, one on the other, each aligned."""
    top = 0
    for index in indices:
        buffer = problem.buffers[index]
        top = -(-top // buffer.alignment) * buffer.alignment + buffer.nbytes
    return top


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 4, 8]))
def test_at_every_step_some_stack_reaches_the_padded_bound_and_none_is_below(seed, alignment):
    problem = random_problem(seed, 6, steps=12, alignments=(alignment,), fixed=False, gaps=False)
    best = 0
    for step in range(12):
        live = [k for k, b in enumerate(problem.buffers) if b.start <= step < b.end]
        # The one with the largest padding on top is the best stack of one alignment.
        live.sort(key=lambda k: -problem.buffers[k].nbytes % alignment)
        best = max(best, stacked(problem, live))
    assert arena_lower_bound(problem) == best


def test_a_fixed_buffer_lifts_the_bound():
    problem = LayoutProblem((Buffer("a", 0, 1, 3), Buffer("b", 5, 6, 2, offset=40)))
    assert live_bytes(problem) == 3
    assert arena_lower_bound(problem) == 42


def test_nothing_needs_nothing():
    problem = LayoutProblem(())
    assert live_bytes(problem) == 0
    assert arena_lower_bound(problem) == 0


def bytes_in_use(buffer, offset):
    """Every (step, byte) that a buffer uses, one by one."""
    used = set()
    for step in range(buffer.start, buffer.end):
        low, high = 0, buffer.nbytes
        for gap in buffer.gaps:
            if gap.start <= step < gap.end:
                low, high = gap.window or (0, 0)
        used |= {(step, offset + byte) for byte in range(low, high)}
    return used


@given(st.integers(0, 10**6))
def test_a_clash_is_found_exactly_when_two_buffers_use_a_byte_together(seed):
    problem = random_problem(seed, 6, steps=6, largest=4, alignments=(1,), fixed=False)
    draw = random.Random(seed)
    layout = Layout.of(problem, tuple(draw.randint(0, 6) for _ in problem.buffers))
    used = [bytes_in_use(*pair) for pair in zip(problem.buffers, layout.offsets, strict=True)]
    if len(set().union(*used)) == sum(map(len, used)):
        check_layout(problem, layout)
    else:
        with pytest.raises(VerifyError, match="clash at step"):
            check_layout(problem, layout)


def test_offsets_and_the_arena_are_checked():
    problem = LayoutProblem((Buffer("a", 0, 1, 3, 4), Buffer("b", 0, 1, 3, 4, offset=8)))
    check_layout(problem, Layout((0, 8), 11), capacity_bytes=11)
    for layout, words in [
        (Layout((0,), 3), "1 offsets for 2"),
        (Layout((2, 8), 11), "alignment"),
        (Layout((-4, 8), 11), "alignment"),
        (Layout((0, 4), 7), "fixed at 8"),
        (Layout((0, 8), 12), "its top is at 11"),
    ]:
        with pytest.raises(VerifyError, match=words):
            check_layout(problem, layout)
    with pytest.raises(VerifyError, match="capacity of 10"):
        check_layout(problem, Layout((0, 8), 11), capacity_bytes=10)

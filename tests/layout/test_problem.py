import pytest

from neaptide.errors import LayoutProblemError
from neaptide.layout.problem import LIMIT, Buffer, Gap, LayoutProblem, Part
from together import together


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

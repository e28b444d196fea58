import pytest

from neaptide.errors import LayoutProblemError
from neaptide.layout.pools.spaces import MemorySpace, Place, PooledLayout, PooledProblem
from neaptide.layout.problem import LIMIT, Buffer, LayoutProblem
from together import together

FAST, SLOW = MemorySpace("fast", 64, 1, 16), MemorySpace("slow", None, 5)
PROBLEM = LayoutProblem((Buffer("a", 0, 2, 10), Buffer("b", 1, 3, 100, 4), Buffer("c", 1, 2, 8, 32)))


def test_choices_and_costs():
    pooled = PooledProblem(PROBLEM, (FAST, SLOW), {"a": 3, "c": 0}, {"c": ["slow", "fast"], "a": ["slow"]})
    assert pooled.choices == ((1,), (1,), (0, 1))  # b is larger than the fast space
    assert pooled.costs == ((30, 150), (100, 500), (0, 0))
    assert len(pooled) == 3


def test_a_part_is_aligned_as_its_space_wants():
    part = PooledProblem(PROBLEM, (FAST, SLOW)).part(0, (0, 2))
    assert [(b.name, b.alignment) for b in part.buffers] == [("a", 16), ("c", 32)]


def test_a_layout_says_what_is_in_a_space():
    layout = PooledLayout((Place(0, 0, 0), Place(1, 0, 0), Place(0, 1, 0)), ((10, 8), (100,)), 0)
    assert layout.members(0) == (0, 2)
    assert (layout.space_bytes(0), layout.space_bytes(1)) == (18, 100)


@together(
    ("spaces", "message"),
    [
        ((), "no memory space"),
        ((FAST, FAST), "two memory spaces have the name 'fast'"),
        ((MemorySpace("x", -1),), "no integer from 0"),
        ((MemorySpace("x", LIMIT),), "no integer from 0"),
        ((MemorySpace("x", 1.5),), "no integer from 0"),
        ((MemorySpace("x", True),), "no integer from 0"),
        ((MemorySpace("x", 8, cost_per_byte=-2),), "no integer from 0"),
        ((MemorySpace("x", 8, alignment=0),), "has the alignment 0"),
        ((MemorySpace("x", 8, alignment=12),), "has the alignment 12"),
        ((MemorySpace("x", max_arena_bytes=-5),), "no integer from 0"),
    ],
)
def test_spaces_that_cannot_be_meant(spaces, message):
    with pytest.raises(LayoutProblemError, match=message):
        PooledProblem(LayoutProblem(()), spaces)


@together(
    ("accesses", "allowed", "message"),
    [
        ({"x": 1}, {}, "there is no buffer 'x'"),
        ({}, {"x": ["fast"]}, "there is no buffer 'x'"),
        ({"a": -1}, {}, "accessed -1 times"),
        ({"a": 0.5}, {}, "accessed 0.5 times"),
        ({}, {"a": ["tape"]}, "'tape', which is not there\n  next: name some of fast, slow"),
        ({}, {"a": []}, "fits none of its spaces\n  why: it has 10 bytes; it is allowed in no space"),
        ({}, {"b": ["fast"]}, "buffer 'b' fits none of its spaces"),
    ],
)
def test_buffers_that_cannot_be_meant(accesses, allowed, message):
    with pytest.raises(LayoutProblemError, match=message):
        PooledProblem(PROBLEM, (FAST, SLOW), accesses, allowed)


def test_a_fixed_buffer_needs_one_space_and_its_alignment():
    problem = LayoutProblem((Buffer("a", 0, 1, 10, offset=24),))
    with pytest.raises(LayoutProblemError, match="may lie in several spaces"):
        PooledProblem(problem, (FAST, SLOW))
    with pytest.raises(LayoutProblemError, match="breaks the alignment"):
        PooledProblem(problem, (FAST, SLOW), allowed={"a": ["fast"]})
    assert PooledProblem(problem, (FAST, SLOW), allowed={"a": ["slow"]}).choices == ((1,),)
    with pytest.raises(LayoutProblemError, match="fits none of its spaces"):
        PooledProblem(problem, (MemorySpace("fast", 33),))

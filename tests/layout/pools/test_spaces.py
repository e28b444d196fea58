from dataclasses import replace

import pytest

from neaptide.errors import LayoutProblemError, VerifyError
from neaptide.layout.pools.spaces import (
    MemorySpace,
    Place,
    PooledLayout,
    PooledProblem,
    check_pooled_layout,
)
from neaptide.layout.problem import LIMIT, Buffer, LayoutProblem
from support.together import together

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


POOLED = PooledProblem(
    LayoutProblem((Buffer("a", 0, 2, 8), Buffer("b", 1, 3, 8), Buffer("c", 0, 3, 4, offset=0))),
    (MemorySpace("fast", 24, 1, 8, 16), MemorySpace("slow", None, 3)),
    {"a": 2},
    {"c": ["slow"], "b": ["fast"]},
)
GOOD = PooledLayout((Place(0, 0, 0), Place(0, 0, 8), Place(1, 0, 0)), ((16,), (4,)), 16 + 8 + 12)


def test_a_good_layout_passes():
    check_pooled_layout(POOLED, GOOD)
    check_pooled_layout(
        POOLED,
        replace(GOOD, places=(Place(0, 0, 0), Place(0, 1, 0), Place(1, 0, 0)), arena_bytes=((8, 8), (4,))),
    )


@together(
    ("changes", "message"),
    [
        ({"places": GOOD.places[:2]}, "not one of this problem"),
        ({"arena_bytes": ((16,),)}, "not one of this problem"),
        (
            {"places": (Place(0, 0, 0), Place(1, 0, 8), Place(1, 0, 0))},
            "'b' lies in 'slow', where it is not allowed",
        ),
        ({"places": (Place(0, 0, 0), Place(2, 0, 8), Place(1, 0, 0))}, "in the space 2, which is not there"),
        ({"cost": 35}, "said to cost 35, it costs 36"),
        ({"arena_bytes": ((16, 8), (4,))}, "has 2 arenas"),
        ({"arena_bytes": ((16,), ())}, "has 0 arenas"),
        ({"arena_bytes": ((32,), (4,))}, "more than 24"),
        ({"arena_bytes": ((24,), (4,))}, "top is at 16"),
        ({"places": (Place(0, 0, 0), Place(0, 0, 0), Place(1, 0, 0))}, "clash|top is at 8"),
        ({"places": (Place(0, 0, 0), Place(0, 0, 12), Place(1, 0, 0))}, "its alignment is 8"),
        (
            {"places": (Place(0, 0, 0), Place(0, 0, 8), Place(1, 1, 0))},
            "the fixed buffer 'c' lies in the arena 1",
        ),
        ({"places": (Place(0, 0, 0), Place(0, 0, 8), Place(1, 0, 4))}, "is fixed at 0"),
        (
            {"places": (Place(0, 0, 0), Place(0, 0, 16), Place(1, 0, 0)), "arena_bytes": ((24,), (4,))},
            "more than the capacity of 16|top is at 24",
        ),
    ],
)
def test_every_fault_is_found(changes, message):
    with pytest.raises(VerifyError, match=message):
        check_pooled_layout(POOLED, replace(GOOD, **changes))

from dataclasses import replace

import pytest

from neaptide.errors import VerifyError
from neaptide.layout.pools.check import check_pooled_layout
from neaptide.layout.pools.spaces import MemorySpace, Place, PooledLayout, PooledProblem
from neaptide.layout.problem import Buffer, LayoutProblem
from together import together

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

from neaptide.layout.pools.bounds import SectionLoads, cost_bound
from neaptide.layout.pools.check import check_pooled_layout
from neaptide.layout.pools.filling import DENSITIES, WAYS, fill_spaces
from neaptide.layout.pools.space_packer import SpacePacker
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.outcome import LimitGuard, Limits
from pool_play import microcontroller, random_pools
from together import together


def fill(pooled, density, *, inserts=False):
    sections = SectionLoads(pooled.problem)
    packer = SpacePacker(pooled, LimitGuard(Limits()))
    return fill_spaces(pooled, sections, cost_bound(pooled, sections), density, packer, inserts=inserts)


@together(("density", "inserts"), WAYS)
def test_every_way_gives_legal_layouts(density, inserts):
    for pooled in (microcontroller(), *(random_pools(seed, 15, gaps=True, fixed=True) for seed in range(25))):
        layout = None if pooled is None else fill(pooled, density, inserts=inserts)
        if layout is not None:
            check_pooled_layout(pooled, layout)
    assert {name for name, _ in WAYS} == set(DENSITIES)


def test_densities_differ_in_what_they_keep():
    buffers = (Buffer("long", 0, 10, 4), Buffer("x", 0, 1, 4), Buffer("y", 1, 2, 4), Buffer("big", 2, 3, 6))
    spaces = (MemorySpace("fast", 6, 1), MemorySpace("slow", None, 2))
    pooled = PooledProblem(LayoutProblem(buffers), spaces, {"long": 3, "x": 2, "y": 2, "big": 1})
    assert fill(pooled, "saving_per_byte").members(0) == (0,)
    assert fill(pooled, "saving_per_area").members(0) == (1, 2, 3)
    # Savings are 12 for the first, 8, 8 and 6 for the others: prices see that these are worth more together.
    assert fill(pooled, "saving_per_price").members(0) == (1, 2, 3)


def test_what_was_taken_out_comes_back_where_it_fits():
    # The fullest step takes `low` out first, then `wide`; beside what is left there is room for `low` again.
    buffers = (Buffer("keep", 0, 2, 6), Buffer("low", 0, 2, 2), Buffer("wide", 0, 2, 8))
    spaces = (MemorySpace("fast", 8, 1), MemorySpace("slow", None, 2))
    pooled = PooledProblem(LayoutProblem(buffers), spaces, {"keep": 9, "low": 1, "wide": 2})
    assert fill(pooled, "saving_per_area").members(0) == (0, 1)


def test_no_layout_for_what_must_be_in_a_space():
    # Five live bytes at most, but no layout below six: the space would need alignment to give way.
    buffers = (Buffer("a", 0, 2, 1, 4), Buffer("b", 0, 2, 4, 4))
    pooled = PooledProblem(LayoutProblem(buffers), (MemorySpace("only", 5, 1),))
    assert fill(pooled, "saving").members(0) == (0, 1)
    tight = LayoutProblem((*buffers, Buffer("c", 0, 2, 1, 4)))
    assert fill(PooledProblem(tight, (MemorySpace("only", 6, 1),)), "saving") is None

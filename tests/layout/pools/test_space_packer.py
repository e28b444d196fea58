from layout_play import from_rows
from neaptide.layout.best_layout import best_layout
from neaptide.layout.pools.arenas import pack_quickly
from neaptide.layout.pools.space_packer import SpacePacker
from neaptide.layout.pools.spaces import MemorySpace, PooledProblem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.outcome import LimitGuard, Limits
from neaptide_corpus.layouts import staggered
from pool_play import check_packing


def packer(problem, *spaces, work=None):
    return SpacePacker(PooledProblem(problem, spaces), LimitGuard(Limits(work=work)))


def test_a_search_finds_what_the_rules_do_not():
    problem = from_rows(staggered(40, 2))
    smallest = best_layout(problem, Limits(work=20_000)).require().arena_bytes
    assert pack_quickly(problem, smallest) is None
    found = packer(problem, MemorySpace("x", smallest)).pack(0, range(len(problem)))
    check_packing(problem, found)
    assert found.nbytes <= smallest
    assert packer(problem, MemorySpace("x", smallest), work=1).pack(0, range(len(problem))) is None


def test_answers_are_remembered():
    problem = LayoutProblem((Buffer("a", 0, 1, 4), Buffer("b", 0, 1, 4)))
    ours = packer(problem, MemorySpace("x", 7), MemorySpace("y"))
    assert ours.pack(0, (0, 1)) is None
    found = ours.pack(1, (1, 0))
    work = ours.guard.work
    assert ours.pack(1, {0, 1}) is found
    assert ours.pack(0, (1, 0)) is None
    assert ours.guard.work == work
    assert found.arena_bytes == (8,)

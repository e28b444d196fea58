"""What `layout.placement.Rule` promises, of every rule by name, those of others included."""

from __future__ import annotations

import threading

import pytest

from layout.layout_play import nothing_shared, random_problem, renumbered
from layout.layout_small import NINE, problem_of
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.placement import RULES as OWN
from neaptide.layout.placement import RuleStopped
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.validate import check_layout
from neaptide.named_peers import GRID
from neaptide.outcome import LimitGuard, Limits
from neaptide_peers.layouts.rules import ALL_RULES as RULES
from support.together import together

UNNUMBERED = (*GRID, "xla", "tvm_size", "tvm_conflicts", "breadth")
"""Rules whose arena does not depend on how buffers without gaps are numbered."""
CLIMB = "hill_climb"  # a search, and slow for as many problems


def test_every_own_rule_is_among_them():
    assert set(OWN) <= set(RULES)


@together("name", [name for name in RULES if name != CLIMB], quick=OWN)
def test_layouts_are_legal_the_same_again_and_between_the_bound_and_the_sum(name):
    for seed in range(25):
        problem = random_problem(seed, 40, largest=1 << 33)
        layout = RULES[name](problem)
        check_layout(problem, layout)
        assert arena_lower_bound(problem) <= layout.arena_bytes <= nothing_shared(problem)
        assert RULES[name](problem) == layout


@together("name", [*OWN, *UNNUMBERED], quick=OWN)
def test_the_arena_does_not_depend_on_numbering(name):
    for seed in range(8):
        problem = random_problem(seed, 25, gaps=False)
        assert RULES[name](renumbered(problem, seed)).arena_bytes == RULES[name](problem).arena_bytes


@together("name", RULES, quick=OWN)
def test_trivial_problems_are_solved_and_no_problem_below_its_smallest_arena(name):
    rule = RULES[name]
    assert rule(LayoutProblem(())).arena_bytes == 0
    assert rule(problem_of((3, 9, 7), alignment=8)).offsets == (0,)
    fixed = LayoutProblem((Buffer("here", 0, 2, 4, offset=12), Buffer("there", 0, 2, 3, offset=0)))
    assert rule(fixed).offsets == (12, 0)
    assert rule(problem_of(*((t, t + 1, 5) for t in range(4)))).arena_bytes == 5
    assert rule(problem_of(*NINE)).arena_bytes >= 9


@together("name", RULES, quick=OWN)
def test_an_interrupt_stops_a_rule_and_work_does_not(name):
    problem, stop = random_problem(1, 60, steps=30), threading.Event()
    guard = LimitGuard(Limits(work=0))
    layout = RULES[name](problem, guard)
    check_layout(problem, layout)
    assert (layout, guard.work) == (RULES[name](problem), 0)
    stop.set()
    with pytest.raises(RuleStopped, match="interrupt"):
        RULES[name](problem, LimitGuard(Limits(), stop))

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_play import from_rows, nothing_shared, random_problem, renumbered
from layout_small import NINE, problem_of
from neaptide.layout.bounds import arena_lower_bound, live_bytes
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.validate import check_layout
from neaptide_corpus.layouts import equal_sizes, nested, training_shaped
from neaptide_peers.layouts.grid import GRID
from neaptide_peers.layouts.rules import ALL_RULES as RULES
from together import together

SEEDS = st.integers(0, 10**9)
UNNUMBERED = (*GRID, "xla", "tvm_size", "tvm_conflicts", "breadth")
"""Rules whose arena does not depend on how buffers without gaps are numbered."""


# The climb has its own tests: it is a search, and slow for this many.
@pytest.mark.parametrize("name", [name for name in RULES if name != "hill_climb"])
@given(seed=SEEDS)
def test_every_layout_is_legal_and_shares_something_or_nothing(name, seed):
    problem = random_problem(seed, 40, largest=1 << 33)
    layout = RULES[name](problem)
    check_layout(problem, layout)
    assert arena_lower_bound(problem) <= layout.arena_bytes <= nothing_shared(problem)
    assert RULES[name](problem) == layout


@pytest.mark.parametrize("name", UNNUMBERED)
@given(seed=SEEDS)
def test_the_arena_does_not_depend_on_numbering(name, seed):
    problem = random_problem(seed, 25, gaps=False)
    arena = RULES[name](problem).arena_bytes
    assert RULES[name](renumbered(problem, seed)).arena_bytes == arena


@together("name", RULES)
def test_trivial_problems_are_solved_by_every_rule_and_no_problem_below_its_smallest_arena(name):
    rule = RULES[name]
    assert rule(LayoutProblem(())).arena_bytes == 0
    assert rule(problem_of((3, 9, 7), alignment=8)).offsets == (0,)
    fixed = LayoutProblem((Buffer("here", 0, 2, 4, offset=12), Buffer("there", 0, 2, 3, offset=0)))
    assert rule(fixed).offsets == (12, 0)
    assert rule(problem_of(*((t, t + 1, 5) for t in range(4)))).arena_bytes == 5
    assert rule(problem_of(*NINE)).arena_bytes >= 9
    large = random_problem(1, 200, steps=60)
    check_layout(large, rule(large))


def test_first_fit_in_program_order_wastes_what_other_orders_do_not():
    problem = problem_of((0, 1, 1), (0, 2, 1), (1, 2, 2))
    assert live_bytes(problem) == 3
    assert RULES["first_fit"](problem).offsets == (0, 1, 2)
    assert RULES["life_first"](problem).arena_bytes == 3


@given(SEEDS)
def test_equal_sizes_by_start_need_no_more_than_live_bytes(seed):
    problem = from_rows(equal_sizes(60, seed))
    for name in ("start_first", "start_best", "first_fit", "ort", "tags"):
        assert RULES[name](problem).arena_bytes == live_bytes(problem), name


@given(SEEDS)
def test_nested_lives_by_start_need_no_more_than_live_bytes(seed):
    problem = from_rows(nested(60, seed))
    assert RULES["life_first"](problem).arena_bytes == live_bytes(problem)


def test_training_steps_are_close_to_the_bound_by_size():
    for seed in range(3):
        problem = from_rows(training_shaped(400, seed, alignment=64))
        assert RULES["size_first"](problem).arena_bytes <= 1.05 * arena_lower_bound(problem)
        assert RULES["xla"](problem).arena_bytes <= RULES["size_best"](problem).arena_bytes


def test_tflite_puts_what_lives_all_the_time_at_the_bottom():
    problem = problem_of((0, 4, 9), (0, 9, 1), (4, 9, 5))
    assert RULES["tflite"](problem).offsets == (1, 0, 1)
    assert RULES["tflm"](problem).offsets == (0, 9, 0)


def test_tvm_never_uses_a_hole():
    # By size: a, b on top of it, c on top of b; below c there is room while a is gone.
    problem = problem_of((0, 2, 5), (1, 4, 4), (3, 4, 3))
    assert RULES["tvm_size"](problem).offsets == (0, 5, 9)
    assert RULES["size_first"](problem).offsets == (0, 5, 0)

from layout_play import random_problem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.validate import check_layout
from neaptide_peers.layouts.end_to_end import lay_end_to_end
from neaptide_peers.layouts.shared_objects import place_breadth_objects, place_executorch


def problem_of(*rows):
    return LayoutProblem(tuple(Buffer(f"b{k}", *row) for k, row in enumerate(rows)))


def test_executorch_takes_the_closest_free_object_else_room_inside_one():
    # Two objects, of 10 and 6; then one for the first alone in time, one on top of it, one that needs a third.
    problem = problem_of((0, 4, 10), (0, 2, 6), (2, 4, 5), (2, 4, 3), (5, 6, 2))
    layout = place_executorch(problem)
    # b2 shares with b1. b3 meets b0 and b2: no room inside either. b4 is alone: the smallest object.
    assert layout.offsets == (0, 10, 10, 16, 16)
    inside = problem_of((0, 2, 10), (4, 6, 4), (4, 6, 3), (4, 6, 3))
    assert place_executorch(inside).offsets == (0, 0, 4, 7)


def test_breadth_grows_the_largest_free_object_when_none_is_large_enough():
    # Step 1 is the broadest; the single buffer of step 3 is larger than any object.
    problem = problem_of((1, 2, 6), (1, 2, 5), (3, 4, 9))
    assert place_breadth_objects(problem).arena_bytes == 9 + 5


def test_objects_lie_above_fixed_buffers_and_are_aligned_for_all_members():
    problem = LayoutProblem(
        (
            Buffer("fixed", 0, 1, 3, offset=2),
            Buffer("a", 0, 1, 5, 2),
            Buffer("b", 1, 2, 3, 8),
            Buffer("c", 0, 2, 1),
        )
    )
    layout = lay_end_to_end(problem, (9, 0, 0, 1), (0, 0, 0, 0), (5, 1))
    assert layout.offsets == (2, 8, 8, 13)
    check_layout(problem, layout)


def test_shared_objects_of_small_problems_are_legal():
    for seed in range(100):
        problem = random_problem(seed, 15)
        check_layout(problem, place_executorch(problem))
        check_layout(problem, place_breadth_objects(problem))

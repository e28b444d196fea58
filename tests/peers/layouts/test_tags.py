from hypothesis import given
from hypothesis import strategies as st

from layout_play import random_problem
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.validate import check_layout
from neaptide_peers.layouts.tags import (
    NO_TAG,
    TagAction,
    TagStep,
    allocate_tags,
    place_tags,
    steps_of_problem,
)

# exp(a * b + 3): the example of the lecture. Values: a, b, a * b, + 3, exp.
NAMES = ("a", "b", "a * b", "+ 3", "exp")
CHAIN = (
    TagStep("mul", (2,), (0, 1), ((2, 0),)),
    TagStep("add", (3,), (2,), ((3, 2),)),
    TagStep("exp", (4,), (3,), ((4, 3),)),
)


def test_in_place_passes_one_tag_along_a_chain():
    plan = allocate_tags(CHAIN, (4, 4, 4, 4, 4), kept=(4,))
    assert plan.tag_of == (NO_TAG, NO_TAG, 0, 0, 0)
    assert plan.tag_bytes == (4,)
    assert list(plan.lines(NAMES)) == [
        "step 0: mul: a * b takes the new tag 0; box {}",
        "step 1: add: + 3 takes tag 0 from a * b; box {}",
        "step 2: exp: exp takes tag 0 from + 3; box {}",
    ]


def test_without_in_place_two_tags_take_turns():
    steps = [TagStep(step.name, step.makes, step.reads) for step in CHAIN]
    plan = allocate_tags(steps, (4, 4, 4, 4, 4), kept=(4,))
    assert plan.tag_of[2:] == (0, 1, 0)
    assert list(plan.lines()) == [
        "step 0: mul: v2 takes the new tag 0; box {}",
        "step 1: add: v3 takes the new tag 1; box {}",
        "step 1: add: v2 puts tag 0 into the box; box {0}",
        "step 2: exp: v4 takes tag 0 from the box; box {}",
        "step 2: exp: v3 puts tag 1 into the box; box {1}",
    ]


def test_a_value_with_another_consumer_is_not_overwritten():
    # v0 -> v1 in place; v2 reads v0 before or after that.
    late = (TagStep("make", (0,)), TagStep("relu", (1,), (0,), ((1, 0),)), TagStep("use", (2,), (0,)))
    assert allocate_tags(late, (1, 1, 1), last_consumer=True).tag_of[1] == 1
    early = (late[0], late[2], late[1])
    assert allocate_tags(early, (1, 1, 1)).tag_of[1] != 0
    assert allocate_tags(early, (1, 1, 1), last_consumer=True).tag_of[1] == 0
    assert allocate_tags(early, (1, 1, 1), kept=(0,), last_consumer=True).tag_of[1] != 0


def test_one_operand_is_passed_on_to_one_result_only():
    steps = (TagStep("make", (0,)), TagStep("split", (1, 2), (0,), ((1, 0), (2, 0))))
    plan = allocate_tags(steps, (8, 4, 4), kept=(1, 2))
    assert plan.tag_of == (0, 0, 1)
    assert [event.action for event in plan.events] == [TagAction.MADE, TagAction.PASSED, TagAction.MADE]


def test_the_box_gives_the_smallest_tag_that_is_large_enough_else_the_largest():
    steps = (
        TagStep("make", (0, 1, 2)),
        TagStep("drop", (), (0, 1, 2)),
        TagStep("fits", (3,)),
        TagStep("grows", (4,)),
    )
    plan = allocate_tags(steps, (2, 5, 9, 4, 20), kept=(3, 4))
    assert plan.tag_of == (0, 1, 2, 1, 2)
    assert plan.tag_bytes == (2, 5, 20)
    assert plan.total_bytes == 27


def test_a_value_that_nothing_reads_gives_its_tag_back_at_once():
    plan = allocate_tags((TagStep("a", (0,)), TagStep("b", (1,))), (3, 3))
    assert plan.tag_of == (0, 0)


def test_steps_of_a_problem_keep_its_lifetimes():
    problem = LayoutProblem(
        (Buffer("a", 0, 3, 1), Buffer("b", 2, 3, 1), Buffer("c", 3, 4, 1), Buffer("f", 0, 9, 1, offset=0))
    )
    steps = steps_of_problem(problem)
    assert [(s.name, s.makes, s.reads) for s in steps] == [
        ("t0", (0,), ()),
        ("t2", (1,), (0,)),
        ("t3", (2,), ()),
    ]


@given(st.integers(0, 10**9))
def test_tags_of_a_problem_make_a_legal_layout(seed):
    problem = random_problem(seed, 60)
    check_layout(problem, place_tags(problem))
    plan = allocate_tags(steps_of_problem(problem), problem.sizes.tolist())
    assert all(box.endswith("}") for box in plan.lines())
    for index, tag in enumerate(plan.tag_of):
        assert (tag == NO_TAG) == (problem.buffers[index].offset is not None)
        assert tag == NO_TAG or plan.tag_bytes[tag] >= problem.buffers[index].nbytes

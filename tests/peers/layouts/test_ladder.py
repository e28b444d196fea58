"""The ladder of the lecture, its tags, and Inductor's pool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout.layout_play import random_problem
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ir.schedule import Schedule
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.from_schedule import OUTSIDE, schedule_buffers
from neaptide.layout.in_place import choose_in_place, share
from neaptide.layout.problem import Buffer, LayoutProblem
from neaptide.layout.result import Layout
from neaptide.layout.validate import check_layout
from neaptide.ops import registry
from neaptide_peers.layouts.inductor_pool import place_inductor
from neaptide_peers.layouts.ladder import memory_ladder, schedule_tags
from neaptide_peers.layouts.tags import (
    NO_TAG,
    TagAction,
    TagStep,
    allocate_tags,
    place_tags,
    steps_of_problem,
)
from support.drawn import graphs

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


TOY = OpRegistry([OpSpec("toy.mix", in_place=(0, 1, 2)), OpSpec("toy.expand_like", in_place=(0,))])


def chain(tail):
    """mm, exp, exp, mm, then a sum: one operation that can work in place, one whose operand's bytes are free later."""
    b = GraphBuilder("chain", registry())
    x, w = b.input("x", (16, 16)), b.input("w", (16, 16))
    value = x
    for number, op in enumerate(("mm", "exp", "exp", "mm", "mm")):
        operands = (value, w) if op == "mm" else (value,)
        (value,) = b.node(f"aten.{op}.default", *operands, outputs=[f"v{number}: f32[16, 16]"])
    (total,) = b.node("aten.sum.default", value, outputs=[f"total: f32[{tail}]"])
    b.output(total)
    return b.finish()


def test_each_rung_needs_less():
    graph = chain(tail=1)
    rows = memory_ladder(graph, Schedule.program_order(graph), registry())
    kib = 1024
    assert [(row.name, row.nbytes) for row in rows] == [
        ("no reuse", 5 * kib),
        ("in-place", 3 * kib),  # mm and both exp, mm, mm
        ("liveness counters", 2 * kib),
        ("static plan", 2 * kib),
    ]
    assert rows[1].note.startswith("2 results")


def test_the_static_plan_is_checked():
    graph = chain(tail=1)
    with pytest.raises(Exception, match="clash"):
        memory_ladder(
            graph, Schedule.program_order(graph), registry(), plan=lambda p: Layout((0,) * len(p), 1024)
        )


@given(graphs(min_nodes=1, max_nodes=24))
def test_rungs_are_ordered_and_above_the_bound(graph):
    schedule = Schedule.program_order(graph)
    none, in_place, counters, static = (row.nbytes for row in memory_ladder(graph, schedule, TOY))
    assert none >= in_place >= counters
    shared = share(schedule_buffers(graph, schedule), choose_in_place(graph, schedule, TOY))
    assert min(counters, static) >= arena_lower_bound(shared.problem)


@given(graphs(min_nodes=1, max_nodes=24))
def test_tags_are_legal(graph):
    """Two instances with one tag are never there together, but for an operand and the result on top of it."""
    schedule = Schedule.program_order(graph)
    buffers = schedule_buffers(graph, schedule)
    choices = choose_in_place(graph, schedule, TOY)
    plan = schedule_tags(graph, buffers, choices)
    pairs = {(choice.taken, choice.made) for choice in choices}
    instances = buffers.liveness.instances
    for one, tag in enumerate(plan.tag_of):
        assert (tag == NO_TAG) == (buffers.buffer_of[one] == OUTSIDE)
        for other in range(one + 1, len(instances)):
            if tag != NO_TAG and tag == plan.tag_of[other] and (one, other) not in pairs:
                assert (
                    instances[one].end <= instances[other].start
                    or instances[other].end <= instances[one].start
                )
    for taken, made in pairs:
        assert plan.tag_of[taken] == plan.tag_of[made]


# The tree in plain nested lists, without anything kept: a leaf is ("buffer", index), a split ("split", left, right),
# a slot a list [fixed size or None, contents]. Sizes and lifetimes are looked up again each time.


def size_of(slot, sizes):
    return max([slot[0], *(size_of_content(c, sizes) for c in slot[1])])


def size_of_content(content, sizes):
    if content[0] == "buffer":
        return sizes[content[1]]
    return size_of(content[1], sizes) + size_of(content[2], sizes)


def members(content):
    if content[0] == "buffer":
        return [content[1]]
    return [m for slot in content[1:] for c in slot[1] for m in members(c)]


def allocate(slot, index, problem, sizes, is_last):
    size = size_of(slot, sizes)
    if not is_last and sizes[index] > size:
        return False
    b = problem.buffers
    met = [
        c for c in slot[1] if any(b[m].start < b[index].end and b[m].end > b[index].start for m in members(c))
    ]
    if len(met) > 1 or (met and met[0][0] == "buffer"):
        return False
    if met:
        _, left, right = met[0]
        return allocate(left, index, problem, sizes, False) or allocate(right, index, problem, sizes, is_last)
    leaf = ("buffer", index)
    if size > sizes[index]:
        leaf = ("split", [0, [leaf]], [size - sizes[index], []])
    elif size < sizes[index]:
        slot[1] = [("split", [size, [c]], [sizes[index] - size, []]) for c in slot[1]]
    slot[1].append(leaf)
    return True


def offsets_of(slot, at, sizes, offsets):
    for content in slot[1]:
        if content[0] == "buffer":
            offsets[content[1]] = at
        else:
            offsets_of(content[1], at, sizes, offsets)
            offsets_of(content[2], at + size_of(content[1], sizes), sizes, offsets)


def place_by_words(problem):
    sizes = [b.nbytes for b in problem.buffers]
    root = None
    for index in sorted(
        range(len(sizes)), key=lambda i: (-sizes[i], problem.buffers[i].start - problem.buffers[i].end)
    ):
        if root is None:
            root = [0, [("buffer", index)]]
        elif not allocate(root, index, problem, sizes, True):
            root = [0, [("split", root, [0, [("buffer", index)]])]]
    offsets = {}
    offsets_of(root, 0, sizes, offsets)
    return tuple(offsets[index] for index in range(len(sizes)))


@given(st.integers(0, 10**9), st.sampled_from((3, 12, 40)))
def test_the_pool_is_the_one_of_the_plain_tree(seed, most):
    for step in range(4):
        problem = random_problem(f"{seed}.{step}", most, alignments=(1,), fixed=False, gaps=False)
        layout = place_inductor(problem)
        assert layout.offsets == place_by_words(problem)
        check_layout(problem, layout)


def test_a_buffer_goes_into_what_another_leaves():
    problem = LayoutProblem(
        (Buffer("a", 0, 2, 9), Buffer("b", 2, 4, 5), Buffer("c", 3, 4, 4), Buffer("d", 0, 4, 2))
    )
    assert place_inductor(problem).offsets == (0, 0, 5, 9)

import pytest
from hypothesis import given

from neaptide.ir.builder import GraphBuilder
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ir.schedule import Schedule
from neaptide.layout.best_layout import best_layout
from neaptide.layout.bounds import arena_lower_bound
from neaptide.layout.from_schedule import OUTSIDE, schedule_buffers
from neaptide.layout.in_place import choose_in_place, share
from neaptide.layout.result import Layout
from neaptide.ops import registry
from neaptide.outcome import Limits
from neaptide_peers.layouts import ladder
from neaptide_peers.layouts.ladder import memory_ladder, schedule_tags
from neaptide_peers.layouts.tags import NO_TAG
from strategies import graphs

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


def test_the_static_plan_has_the_limits_of_the_caller(monkeypatch):
    seen = []

    def searched(problem, limits, interrupt):
        seen.append(limits)
        return best_layout(problem, limits, interrupt)

    monkeypatch.setattr(ladder, "best_layout", searched)
    graph = chain(tail=1)
    for limits in (None, Limits(seed=3), Limits(time_s=9.0)):
        memory_ladder(graph, Schedule.program_order(graph), registry(), limits=limits)
    assert [(found.time_s, found.seed, found.work is None) for found in seen] == [
        (None, 0, False),
        (None, 3, False),
        (9.0, 0, True),
    ]


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

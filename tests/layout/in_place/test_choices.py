from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from neaptide.analysis.in_place import NotInPlace
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.dependencies import predecessors
from neaptide.ir.nodes import Source
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind
from neaptide.layout.bounds import live_bytes
from neaptide.layout.from_schedule import OUTSIDE, schedule_buffers
from neaptide.layout.in_place.check import check_in_place
from neaptide.layout.in_place.choices import Rule, choose_in_place
from neaptide.layout.in_place.shared_buffers import share
from neaptide.ops import registry
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.from_graph import order_problem
from neaptide_corpus.random_graphs import random_graph
from strategies import graphs, node_orders

TOY = OpRegistry([OpSpec("toy.mix", in_place=(0, 1, 2)), OpSpec("toy.expand_like", in_place=(0,))])
ROW = "f32[16]"  # 64 bytes


class Program:
    """A chain builder: every operation is elementwise over rows of 64 bytes."""

    def __init__(self):
        self.builder = GraphBuilder("program", registry())
        self.x = self.builder.input("x", (16,))

    def op(self, name, op, *operands, phase="forward", **kwargs):
        (made,) = self.builder.node(
            op, *operands, outputs=[f"{name}: {ROW}"], source=Source(phase=phase), **kwargs
        )
        return made

    def exp(self, name, operand, **kwargs):
        return self.op(name, "aten.exp.default", operand, **kwargs)

    def add(self, name, *operands, **kwargs):
        return self.op(name, "aten.add.Tensor", *operands, **kwargs)

    def finish(self, *outputs):
        self.builder.output(*outputs)
        return self.builder.finish()


def chosen(graph, schedule=None, **options):
    """Names of (result, operand) and the whole answer."""
    result = choose_in_place(graph, schedule or Schedule.program_order(graph), registry(), **options)
    names = [(graph.values[c.output].name, graph.values[c.operand].name) for c in result.choices]
    return names, result


def refusal(graph, output, operand, schedule=None, **options):
    _, result = chosen(graph, schedule, **options)
    (found,) = [
        r
        for r in result.refusals
        if (graph.values[r.output].name, graph.values[r.operand].name) == (output, operand)
    ]
    return found


def test_lecture_example_runs_in_one_buffer():
    """exp(a * b + 3): the product, the sum and the power share their bytes."""
    p = Program()
    b = p.builder.input("b", (16,))
    product = p.op("product", "aten.mul.Tensor", p.x, b)
    total = p.op("total", "aten.add.Scalar", product, 3)
    graph = p.finish(p.exp("last", p.exp("result", total)))
    names, result = chosen(graph)
    assert names == [("total", "product"), ("result", "total")]
    assert [c.rule for c in result.choices] == [Rule.SOLE_CONSUMER] * 2
    assert result.control_edges() == ()
    buffers = schedule_buffers(graph, Schedule.program_order(graph))
    shared = share(buffers, result.choices)
    (buffer,) = shared.problem.buffers
    assert (buffer.start, buffer.end, buffer.nbytes) == (0, 4, 64)
    assert shared.buffer_of == (OUTSIDE, OUTSIDE, 0, 0, 0, OUTSIDE)
    assert [refusal(graph, "product", name).reason for name in "xb"] == [NotInPlace.CALLER_OWNED] * 2
    assert refusal(graph, "last", "result").reason is NotInPlace.RESULT_HANDED_BACK


def test_value_with_two_consumers_is_overwritten_by_the_last_and_pinned():
    p = Program()
    h = p.exp("h", p.x)
    first = p.exp("first", h)
    second = p.exp("second", h)
    graph = p.finish(p.exp("end", p.add("sum", first, second)))
    _, result = chosen(graph)
    choice = next(c for c in result.choices if graph.values[c.operand].name == "h")
    assert graph.values[choice.output].name == "second"
    assert choice.rule is Rule.LAST_CONSUMER
    assert result.control_edges() == ((1, 2),)
    assert refusal(graph, "first", "h").reason is NotInPlace.NEEDED_LATER
    assert refusal(graph, "first", "h").needed_by.target == 2
    names, _ = chosen(graph, rules=(Rule.SOLE_CONSUMER,))
    assert ("second", "h") not in names

    other_way = Schedule.from_nodes(graph, (0, 2, 1, 3, 4))
    _, turned = chosen(graph, other_way)
    assert turned.control_edges() == ((2, 1),)
    with pytest.raises(VerifyError, match="overwritten"):
        check_in_place(graph, other_way, [(c.step, c.output, c.operand) for c in result.choices])


def test_last_consumer_that_data_puts_last_needs_no_pin():
    p = Program()
    h = p.exp("h", p.x)
    graph = p.finish(p.exp("end", p.add("sum", h, p.op("s", "aten.sigmoid.default", h))))
    choice = next(c for c in chosen(graph)[1].choices if graph.values[c.output].name == "sum")
    assert graph.values[choice.operand].name == "s"  # both would do: sole consumers are taken first
    assert refusal(graph, "sum", "h").reason is NotInPlace.RIVAL
    graph = p_without_rival()
    (choice,) = [c for c in chosen(graph)[1].choices if graph.values[c.operand].name == "h"]
    assert choice.rule is Rule.LAST_CONSUMER
    assert choice.pins == ()


def p_without_rival():
    p = Program()
    h = p.exp("h", p.x)
    (total,) = p.builder.node("aten.sum.default", h, outputs=["total: f32[]"])
    return p.finish(p.exp("end", p.op("scaled", "aten.mul.Tensor", h, total)))


def test_value_that_backward_needs_stays():
    p = Program()
    h = p.exp("h", p.x)
    y = p.op("y", "aten.tanh.default", h)
    g = p.exp("g", y, phase="backward")
    graph = p.finish(p.op("grad", "aten.mul.Tensor", g, h, phase="backward"))
    found = refusal(graph, "y", "h")
    assert found.reason is NotInPlace.NEEDED_BY_BACKWARD
    assert found.needed_by.target == 3


def test_live_view_keeps_the_operand():
    p = Program()
    h = p.exp("h", p.x)
    (view,) = p.builder.node("aten.view.default", h, [4, 4], outputs=["view: f32[4, 4] @h"])
    y = p.exp("y", h)
    (m,) = p.builder.node("aten.mm.default", view, view, outputs=["m: f32[4, 4]"])
    graph = p.finish(p.exp("end", y), m)
    assert refusal(graph, "y", "h").reason is NotInPlace.NEEDED_LATER


def test_overwriting_through_a_view_of_equal_layout():
    p = Program()
    h = p.exp("h", p.x)
    (alias,) = p.builder.node("aten.alias.default", h, outputs=[f"alias: {ROW} @h"])
    graph = p.finish(p.exp("end", p.exp("y", alias)))
    names, result = chosen(graph)
    assert names == [("y", "alias")]
    assert result.choices[0].rule is Rule.SOLE_CONSUMER


def test_result_of_an_in_place_node_is_overwritten_after_it():
    """A norm, then a relu in place, then a sum: the sum is the only reader of what the relu wrote."""
    p = Program()
    h = p.exp("h", p.x)
    (r,) = p.builder.node("aten.relu_.default", h, outputs=[f"r: {ROW} @h"])
    graph = p.finish(p.exp("end", p.op("y", "aten.add.Scalar", r, 1)))
    names, result = chosen(graph)
    assert names == [("y", "r")]
    assert result.choices[0].rule is Rule.SOLE_CONSUMER


def test_handed_back_operand_stays():
    p = Program()
    h = p.exp("h", p.x)
    graph = p.finish(h, p.exp("end", p.exp("y", h)))
    assert refusal(graph, "y", "h").reason is NotInPlace.OPERAND_HANDED_BACK


def peaks(graph, schedule, rows, donated=()):
    """Bytes live at once with every operand kept, and with operands overwritten."""
    buffers = schedule_buffers(graph, schedule, alignment=1, results_outside=False, resident_outside=False)
    result = choose_in_place(graph, schedule, rows, donated=donated)
    return live_bytes(buffers.problem), live_bytes(share(buffers, result.choices).problem)


def test_callers_input_is_overwritten_only_when_donated():
    p = Program()
    h = p.exp("h", p.x)
    y = p.exp("y", h)
    graph = p.finish(p.exp("end", y))
    schedule = Schedule.program_order(graph)
    assert refusal(graph, "h", "x").reason is NotInPlace.CALLER_OWNED
    names, result = chosen(graph, donated=[graph.inputs[0]])
    assert names == [("h", "x"), ("y", "h")]
    shared = share(schedule_buffers(graph, schedule), result.choices)
    assert len(shared.problem) == 0
    assert peaks(graph, schedule, registry(), donated=[graph.inputs[0]]) == (64 * 3, 64 * 2)
    with pytest.raises(VerifyError, match="caller"):
        check_in_place(graph, schedule, [(c.step, c.output, c.operand) for c in result.choices])


def test_donated_input_waits_for_its_last_use():
    p = Program()
    h = p.exp("h", p.x)
    y = p.add("y", h, p.x)
    graph = p.finish(p.exp("end", y))
    names, _ = chosen(graph, donated=[graph.inputs[0]])
    assert names == [("y", "x")]  # of the two it saves the result's bytes for good
    assert refusal(graph, "h", "x", donated=[graph.inputs[0]]).reason is NotInPlace.NEEDED_LATER


def test_recomputed_value_is_judged_by_instance():
    p = Program()
    h = p.exp("h", p.x)
    y = p.op("y", "aten.tanh.default", h)
    z = p.op("z", "aten.sin.default", h)
    graph = p.finish(p.exp("end", p.add("sum", y, z)))
    kept = Schedule.program_order(graph)
    again = Schedule.from_nodes(graph, (0, 1, 0, 2, 3, 4))
    assert refusal(graph, "y", "h", kept).reason is NotInPlace.NEEDED_LATER
    names, result = chosen(graph, again)
    assert ("y", "h") in names
    assert ("z", "h") in names
    by_result = {graph.values[c.output].name: c for c in result.choices}
    assert by_result["y"].taken != by_result["z"].taken
    assert by_result["y"].rule is by_result["z"].rule is Rule.SOLE_CONSUMER


def test_operand_read_by_two_executions_is_overwritten_by_the_second():
    p = Program()
    h = p.exp("h", p.x)
    y = p.op("y", "aten.tanh.default", h)
    a = p.exp("a", y)
    b = p.add("b", y, a)
    graph = p.finish(p.exp("end", b))
    schedule = Schedule.from_nodes(graph, (0, 1, 2, 1, 3, 4))
    _, result = chosen(graph, schedule)
    over_h = [c for c in result.choices if graph.values[c.operand].name == "h"]
    assert [(c.step.target, c.step.occurrence) for c in over_h] == [(1, 1)]
    assert [(before.target, after.target) for before, after in over_h[0].pins] == [(1, 1)]


def test_unmeant_choices_are_refused():
    p = Program()
    h = p.exp("h", p.x)
    y = p.exp("y", h)
    graph = p.finish(p.exp("end", y), h)
    schedule = Schedule.program_order(graph)
    steps = schedule.node_steps()
    with pytest.raises(VerifyError, match="needs h"):
        check_in_place(graph, schedule, [(steps[1], y, h)])
    with pytest.raises(VerifyError, match="does not make"):
        check_in_place(graph, schedule, [(steps[2], y, h)])
    with pytest.raises(VerifyError, match="never runs"):
        check_in_place(graph, schedule, [(replace(steps[1], occurrence=4), y, h)])


def test_results_kept_in_the_arena_are_not_mixed_with_bytes_outside():
    p = Program()
    h = p.exp("h", p.x)
    graph = p.finish(p.exp("end", h))
    schedule = Schedule.program_order(graph)
    _, result = chosen(p_without_rival())
    buffers = schedule_buffers(graph, schedule)
    wrong = replace(result.choices[0], made=2, taken=1)
    with pytest.raises(VerifyError, match="in the arena"):
        share(buffers, [wrong])


@st.composite
def cases(draw):
    graph = draw(graphs(min_nodes=1, max_nodes=24))
    return graph, Schedule.from_nodes(graph, draw(node_orders(graph)))


@given(cases())
def test_layout_and_order_share_one_choice(case):
    """Bytes live in the merged buffers are those that the ordering problem predicts, in every order."""
    graph, schedule = case
    order = [step.target for step in schedule.steps]
    problem = order_problem(graph, in_place=True, registry=TOY)
    assume(problem.is_order(order))  # it keeps views and mutations of one storage in program order
    peak, in_place_peak = peaks(graph, schedule, TOY)
    assert peak == memory_profile(graph, schedule).peak_bytes
    assert in_place_peak == evaluate_order(problem, order).peak_bytes
    assert in_place_peak <= peak


@given(cases(), st.randoms(use_true_random=False))
def test_choices_hold_in_every_order_that_keeps_the_pins(case, chance):
    graph, schedule = case
    result = choose_in_place(graph, schedule, TOY)
    choices = [(c.step, c.output, c.operand) for c in result.choices]
    place = {}
    for _ in range(4):
        other = shuffled(graph, chance)
        place = {node: position for position, node in enumerate(other)}
        if all(place[before] < place[after] for before, after in result.control_edges()):
            check_in_place(graph, Schedule.from_nodes(graph, other), choices)
    sole = choose_in_place(graph, schedule, TOY, rules=(Rule.SOLE_CONSUMER,))
    assert sole.control_edges() == ()
    check_in_place(
        graph,
        Schedule.from_nodes(graph, shuffled(graph, chance)),
        [(c.step, c.output, c.operand) for c in sole.choices],
    )


def shuffled(graph, chance):
    waiting = [set(before) for before in predecessors(graph)]
    left, order = set(range(len(graph.nodes))), []
    while left:
        ready = sorted(node for node in left if not waiting[node])
        order.append(chance.choice(ready))
        left.remove(order[-1])
        for before in waiting:
            before.discard(order[-1])
    return order


@given(cases())
def test_sharing_keeps_every_instance_inside_its_buffer(case):
    graph, schedule = case
    buffers = schedule_buffers(graph, schedule, alignment=1)
    result = choose_in_place(graph, schedule, TOY)
    shared = share(buffers, result.choices)
    assert live_bytes(shared.problem) <= live_bytes(buffers.problem)
    members = {}
    for index, place in enumerate(shared.buffer_of):
        assert (place == OUTSIDE) == (buffers.buffer_of[index] == OUTSIDE)
        if place != OUTSIDE:
            members.setdefault(place, []).append(buffers.problem.buffers[buffers.buffer_of[index]])
    for place, parts in members.items():
        whole = shared.problem.buffers[place]
        assert whole.nbytes == max(part.nbytes for part in parts)
        assert (whole.start, whole.end) == (min(p.start for p in parts), max(p.end for p in parts))
        for one, next_one in pairwise(sorted(parts, key=lambda part: part.start)):
            assert next_one.start == one.end - 1  # both are there while the result is written, never else
    assert (
        len({c.taken for c in result.choices}) == len({c.made for c in result.choices}) == len(result.choices)
    )


def test_random_graphs_do_have_choices():
    """The properties above are not about nothing."""
    taken = 0
    for seed in range(40):
        graph = random_graph(seed, 24)
        taken += len(choose_in_place(graph, Schedule.program_order(graph), TOY).choices)
    assert taken > 10


def test_parameters_are_never_taken():
    b = GraphBuilder("update", registry())
    w = b.input("w", (16,), kind=Kind.PARAMETER)
    (h,) = b.node("aten.exp.default", w, outputs=[f"h: {ROW}"])
    (y,) = b.node("aten.add.Tensor", h, w, outputs=[f"y: {ROW}"])
    b.node("aten.sub_.Tensor", w, y, outputs=[f"w2: {ROW} @w"])
    graph = b.finish()
    names, _ = chosen(graph)
    assert names == [("y", "h")]

"""Results on top of operands: which, how the bytes are shared, and the same bits on recorded steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, starmap

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from layout.overwriting import bits, overwrite
from layout.recorded_steps import record_step
from neaptide.analysis.in_place import in_place_operands
from neaptide.analysis.profile_bytes import memory_profile
from neaptide.analysis.sizes import evaluate_storage_bytes
from neaptide.errors import VerifyError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Named, Ref
from neaptide.ir.registry import OpRegistry, OpSpec
from neaptide.ir.schedule import Schedule
from neaptide.ir.values import Kind
from neaptide.layout.bounds import live_bytes
from neaptide.layout.from_schedule import OUTSIDE, PERSISTENT, RESULTS, schedule_buffers
from neaptide.layout.in_place import check_in_place, choose_in_place, share
from neaptide.lower.out_variants import resolve_operation
from neaptide.ops import registry
from neaptide.ops.structural import CONSTANT_OP, host_function
from neaptide.schedule.order.evaluate import evaluate_order
from neaptide.schedule.order.from_graph import order_problem
from neaptide.zoo.spec import factory
from neaptide_corpus.random_graphs import random_graph
from neaptide_peers.layouts.ladder import memory_ladder
from support.drawn import graphs, node_orders
from support.together import together
from support.torch_programs import SEED

TOY = OpRegistry([OpSpec("toy.mix", in_place=(0, 1, 2)), OpSpec("toy.expand_like", in_place=(0,))])
ROW = "f32[16]"  # 64 bytes


def program(lines, outputs):
    """Operations over rows of 64 bytes, each as `result = op operand ...`; `x` is the caller's."""
    b = GraphBuilder("program", registry())
    made = {"x": b.input("x", (16,))}
    for line in lines:
        result, _, call = line.partition(" = ")
        op, *operands = call.split()
        values = [made.get(name) if name in made else float(name) for name in operands]
        seen = f" @{operands[0]}" if op.endswith("_.default") or op == "aten.alias.default" else ""
        (made[result],) = b.node(op, *values, outputs=[f"{result}: {ROW}{seen}"])
    b.output(*(made[name] for name in outputs))
    return b.finish()


def names(graph, choices):
    return [f"{graph.values[c.output].name} on {graph.values[c.operand].name}" for c in choices]


def on_top(graph, order=None, **options):
    schedule = Schedule.program_order(graph) if order is None else Schedule.from_nodes(graph, order)
    return names(graph, choose_in_place(graph, schedule, registry(), **options))


EXP, SIN, TANH, ADD, PLUS = (
    f"aten.{op}" for op in ("exp.default", "sin.default", "tanh.default", "add.Tensor", "add.Scalar")
)
CASES = {
    "a chain shares its bytes": ([f"p = {EXP} x", f"s = {PLUS} p 3", f"r = {EXP} s", f"end = {EXP} r"], ["end"], None, ["s on p", "r on s"]),
    "the last of two consumers": (
        [f"h = {EXP} x", f"a = {EXP} h", f"b = {EXP} h", f"sum = {ADD} a b", f"end = {EXP} sum"],
        ["end"],
        None,
        ["b on h", "sum on a"],
    ),
    "the other order, the other consumer": (
        [f"h = {EXP} x", f"a = {EXP} h", f"b = {EXP} h", f"sum = {ADD} a b", f"end = {EXP} sum"],
        ["end"],
        (0, 2, 1, 3, 4),
        ["a on h", "sum on a"],
    ),
    "through a view of equal layout": ([f"h = {EXP} x", "v = aten.alias.default h", f"y = {EXP} v", f"end = {EXP} y"], ["end"], None, ["y on v"]),
    "a view that is read later keeps the bytes": (
        [f"h = {EXP} x", "v = aten.alias.default h", f"y = {EXP} h", f"w = {SIN} v", f"end = {ADD} y w"],
        ["end"],
        None,
        ["w on v"],
    ),
    "what an operation in place made": ([f"h = {EXP} x", "r = aten.relu_.default h", f"y = {PLUS} r 1", f"end = {EXP} y"], ["end"], None, ["y on r"]),
    "what is handed back stays": ([f"h = {EXP} x", f"y = {EXP} h", f"end = {EXP} y"], ["h", "end"], None, []),
    "a recomputed operand is another instance": (
        [f"h = {EXP} x", f"y = {TANH} h", f"z = {SIN} h", f"sum = {ADD} y z", f"end = {EXP} sum"],
        ["end"],
        (0, 1, 0, 2, 3, 4),
        ["y on h", "z on h", "sum on y"],
    ),
    "of two runs the second overwrites": (
        [f"h = {EXP} x", f"y = {TANH} h", f"a = {EXP} y", f"b = {ADD} y a", f"end = {EXP} b"],
        ["end"],
        (0, 1, 2, 1, 3, 4),
        ["a on y", "y on h", "b on y"],
    ),
}  # fmt: skip


@together("name", CASES)
def test_results_lie_on_operands_that_nobody_needs_any_more(name):
    lines, outputs, order, expected = CASES[name]
    assert on_top(program(lines, outputs), order) == expected


def test_a_shared_buffer_lives_as_long_as_all_in_it():
    graph = program([f"p = {EXP} x", f"s = {PLUS} p 3", f"r = {EXP} s", f"end = {EXP} r"], ["end"])
    schedule = Schedule.program_order(graph)
    shared = share(schedule_buffers(graph, schedule), choose_in_place(graph, schedule, registry()))
    (buffer,) = shared.problem.buffers
    assert (buffer.start, buffer.end, buffer.nbytes) == (0, 4, 64)
    assert shared.buffer_of == (OUTSIDE, 0, 0, 0, OUTSIDE)


def peaks(graph, schedule, rows):
    """Bytes live at once with every operand kept, and with operands overwritten."""
    buffers = schedule_buffers(graph, schedule, alignment=1, inside=(PERSISTENT, RESULTS))
    return live_bytes(buffers.problem), live_bytes(
        share(buffers, choose_in_place(graph, schedule, rows)).problem
    )


def test_unmeant_choices_are_refused():
    graph = program([f"h = {EXP} x", f"y = {EXP} h", f"end = {EXP} y"], ["end", "h"])
    schedule = Schedule.program_order(graph)
    steps = schedule.node_steps()
    x, h, y = (graph.inputs[0], *(graph.nodes[node].outputs[0] for node in (0, 1)))
    for step, what in (
        (steps[0], "the caller"),
        (steps[1], "needs h"),
        (steps[2], "does not make"),
        (replace(steps[1], occurrence=4), "never runs"),
    ):
        with pytest.raises(VerifyError, match=what):
            check_in_place(graph, schedule, [(step, h, x) if step is steps[0] else (step, y, h)])


def test_results_kept_in_the_arena_are_not_mixed_with_bytes_outside():
    graph = program([f"h = {EXP} x", f"y = {EXP} h", f"end = {EXP} y"], ["end"])
    schedule = Schedule.program_order(graph)
    (choice,) = choose_in_place(graph, schedule, registry())
    with pytest.raises(VerifyError, match="in the arena"):
        share(schedule_buffers(graph, schedule), [replace(choice, made=3, taken=2)])


@st.composite
def cases(draw):
    graph = draw(graphs(min_nodes=1, max_nodes=24))
    return graph, Schedule.from_nodes(graph, draw(node_orders(graph)))


def in_place(graph):
    """Gives an op of the ordering problem what its node may take over; what is handed back has bytes of its own."""
    sizes, handed_back = evaluate_storage_bytes(graph), graph.output_storages()

    def of_node(node, op):
        operands = in_place_operands(graph, node, TOY, sizes)
        made = {graph.values[value].storage for value in node.outputs} - set(handed_back)
        return replace(op, in_place=tuple((m, graph.values[v].storage) for m in made for v in operands))

    return of_node


@given(cases())
def test_layout_and_order_share_one_choice(case):
    """Bytes live in the merged buffers are those that the ordering problem predicts, in every order."""
    graph, schedule = case
    order = [step.target for step in schedule.steps]
    problem = order_problem(graph)
    problem = replace(
        problem, ops=tuple(starmap(in_place(graph), zip(graph.nodes, problem.ops, strict=True)))
    )
    assume(problem.is_order(order))  # it keeps views and mutations of one storage in program order
    peak, in_place_peak = peaks(graph, schedule, TOY)
    assert peak == memory_profile(graph, schedule).peak_bytes
    assert in_place_peak == evaluate_order(problem, order).peak_bytes
    assert in_place_peak <= peak


@given(cases())
def test_sharing_keeps_every_instance_inside_its_buffer(case):
    graph, schedule = case
    buffers = schedule_buffers(graph, schedule, alignment=1)
    choices = choose_in_place(graph, schedule, TOY)
    shared = share(buffers, choices)
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
    assert len({c.taken for c in choices}) == len({c.made for c in choices}) == len(choices)


def test_random_graphs_do_have_choices():
    """The properties above are not about nothing."""
    found = [random_graph(seed, 24) for seed in range(40)]
    assert sum(len(choose_in_place(graph, Schedule.program_order(graph), TOY)) for graph in found) > 10


def test_parameters_are_never_taken():
    b = GraphBuilder("update", registry())
    w = b.input("w", (16,), kind=Kind.PARAMETER)
    (h,) = b.node("aten.exp.default", w, outputs=[f"h: {ROW}"])
    (y,) = b.node("aten.add.Tensor", h, w, outputs=[f"y: {ROW}"])
    b.node("aten.sub_.Tensor", w, y, outputs=[f"w2: {ROW} @w"])
    assert on_top(b.finish()) == ["y on h"]


LISTED = sorted(row.name for row in registry() if row.in_place)

SPECS = [
    "mlp",
    "gpt2",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("resnet50", "unet", "llama")),
]


@pytest.fixture(scope="module", params=SPECS)
def recorded(request):
    if request.param in {"gpt2", "llama"}:
        pytest.importorskip("transformers")
    return record_step(factory(request.param))


def play(graph, inputs, choices=()):
    """All outputs of a program and its inputs as it leaves them; chosen results are written on top of operands."""
    over = {choice.step.target: choice for choice in choices}
    values = dict(zip(graph.inputs, inputs, strict=True))
    torch.manual_seed(SEED)
    for node in graph.nodes:
        args = [real(graph, node, arg, values) for arg in node.args]
        kwargs = {key: real(graph, node, arg, values) for key, arg in node.kwargs}
        if node.id in over:
            operand = over[node.id].operand
            position = next(
                p
                for p in registry().require(node.op).in_place
                if isinstance(node.args[p], Ref) and node.inputs[node.args[p].slot] == operand
            )
            values[node.outputs[0]] = overwrite(node.op, args, kwargs, position)
            continue
        if node.op == CONSTANT_OP:
            numbers, shape, dtype, _ = args
            got = torch.tensor(numbers, dtype=dtype).reshape(shape)
        else:
            function = host_function(node.op) if node.op.startswith("host.") else resolve_operation(node.op)
            got = function(*args, **kwargs)
        bind(node.results, got, node, values)
    return [values[v] for v in (*graph.outputs, *graph.inputs)]


def real(graph, node, arg, values):
    if isinstance(arg, Ref):
        return values[node.inputs[arg.slot]]
    if isinstance(arg, Named):
        return torch.device(arg.name) if arg.family == "device" else getattr(torch, arg.name)
    return [real(graph, node, item, values) for item in arg] if isinstance(arg, tuple) else arg


def bind(structure, got, node, values):
    if structure is None:
        items = [got] if len(node.outputs) == 1 else got
        values.update(zip(node.outputs, items, strict=False))
        return
    for place, item in zip(structure, got, strict=True):
        if isinstance(place, Ref):
            values[node.outputs[place.slot]] = item
        elif place is not None:
            bind(place, item, node, values)


def test_step_with_results_on_top_of_operands_has_the_same_bits(recorded):
    recorder, graph = recorded
    choices = choose_in_place(graph, Schedule.program_order(graph), registry())
    assert choices
    expected = play(graph, recorder.fresh_inputs())
    got = play(graph, recorder.fresh_inputs(), choices)
    for one, other in zip(expected, got, strict=True):
        if isinstance(one, torch.Tensor):
            assert torch.equal(bits(one), bits(other))
        else:
            assert one == other


def test_every_elementwise_operation_of_the_step_is_decided(recorded):
    """Each functional elementwise operation of the step is claimed, or is a copy or a random one."""
    _, graph = recorded
    for node in graph.nodes:
        row = registry().find(node.op)
        fresh = row is not None and graph.created_storages(node) and len(node.outputs) == 1
        if fresh and row.traits == {"elementwise"} and node.effects.is_pure:
            assert node.op in LISTED or node.op == "aten.rsub.Scalar"


def test_ladder_goes_down(recorded):
    _, graph = recorded
    rows = memory_ladder(graph, Schedule.program_order(graph), registry())
    assert [row.name for row in rows] == ["no reuse", "in-place", "liveness counters", "static plan"]
    assert [row.nbytes for row in rows] == sorted((row.nbytes for row in rows), reverse=True)
    assert rows[0].nbytes > rows[1].nbytes > rows[2].nbytes

"""Lowered programs compute the recorded bits and hold exactly the predicted bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from neaptide.errors import LoweringError
from neaptide.ir.builder import GraphBuilder
from neaptide.ir.nodes import Access, Effects, Named, Source
from neaptide.ir.registry import OpRegistry, OpSpec, Replay
from neaptide.ir.schedule import Schedule, Step, StepKind
from neaptide.lower.program import Watch
from neaptide.lower.torch_code import lower, repeated_draws
from neaptide.ops import registry
from neaptide.ops.structural import CONSTANT_OP
from neaptide.runtime.calls.executor import Executable
from neaptide.symbolic.size_expr import SizeExpr
from support.together import together
from support.torch_programs import Recorder, bits, check_run


def executable(graph, schedule, **options):
    return Executable(lower(graph, schedule, registry(), **options), name="test")


def code(graph, schedule=None, **options):
    return lower(graph, schedule or Schedule.program_order(graph), registry(), **options).source


def check(recorder, graph, order=None):
    """The text of a program that has the recorded bits and holds the predicted bytes, by default in program order."""
    schedule = Schedule.program_order(graph) if order is None else Schedule.from_nodes(graph, order)
    check_run(recorder, graph, schedule, executable(graph, schedule))
    return code(graph, schedule)


def test_the_check_notices_a_name_that_is_not_deleted():
    recorder = Recorder()
    h = recorder.call("aten.relu.default", recorder.input(torch.randn(3), "x"))
    h = recorder.call("aten.exp.default", recorder.call("aten.sigmoid.default", h))
    graph = recorder.finish([h])
    check(recorder, graph)
    schedule = Schedule.program_order(graph)
    program = lower(graph, schedule, registry())
    kept = replace(program, source=program.source.replace("    del relu\n", ""))
    with pytest.raises(AssertionError):
        check_run(recorder, graph, schedule, Executable(kept, name="kept"))


# -- the text


def small_program():
    recorder = Recorder()
    weight = recorder.input(torch.randn(4, 4), "weight")
    x = recorder.input(torch.randn(2, 4), "lambda")
    h = recorder.call("aten.mm.default", x, weight, line=12, module="blocks.0.fc")
    r = recorder.call("aten.relu_.default", h, line=13, module="blocks.0")
    values, _ = recorder.call("aten.topk.default", r, 2, line=14, module="blocks.0")
    return recorder, recorder.finish([values])


def test_text_is_one_line_an_operation_with_the_users_line():
    _, graph = small_program()
    assert code(graph) == (
        "def program(args):\n"
        "    [weight, lambda_] = args\n"
        "    args.clear()\n"
        "    # forward blocks.0.fc\n"
        "    mm = aten_mm_default(lambda_, weight)  # model.py:12\n"
        "    # forward blocks.0\n"
        "    relu_ = aten_relu__default(mm)  # model.py:13\n"
        "    del mm\n"
        "    [topk, topk_1] = aten_topk_default(relu_, 2)  # model.py:14\n"
        "    del relu_, topk_1\n"
        "    return (topk,)\n"
        "\n"
    )


def test_lines_know_their_nodes():
    _, graph = small_program()
    program = lower(graph, Schedule.program_order(graph), registry())
    nodes = [None if node is None else node.op.split(".")[1] for node in program.line_nodes]
    assert nodes == [None, None, None, None, "mm", None, "relu_", "relu_", "topk", "topk", None, None]
    assert program.node_at(5) is graph.nodes[0]
    assert program.node_at(99) is None
    assert program.line_steps[4:10] == (0, None, 1, 1, 2, 2)
    assert Step(StepKind.FREE, 2) in program.schedule.steps


def test_repeated_steps_say_so_and_use_the_same_names():
    recorder, graph = small_program()
    text = check(recorder, graph, [0, 1, 0, 1, 2])
    assert "    mm = aten_mm_default(lambda_, weight)  # again, model.py:12\n" in text
    assert "    aten_relu__default(mm)  # model.py:13\n    del mm\n" in text


def test_names_of_values_do_not_shadow_what_the_program_needs():
    recorder = Recorder()
    x = recorder.input(torch.randn(3), "torch")
    y = recorder.call("aten.relu.default", x)
    values = [x, y]
    for name in ("aten_relu_default", "args", "device_cpu", "watched", "aten_zeros_like_default"):
        recorder.builder.values[y] = replace(recorder.builder.values[y], name=name)
        y = recorder.call("aten.relu.default", y)
        y = recorder.call("aten.zeros_like.default", y, dtype=Named("dtype", "float32"))
        values.append(y)
    graph = recorder.finish(values)
    check(recorder, graph)


def test_constants_short_long_empty_and_not_finite():
    recorder = Recorder()
    device = Named("device", "cpu")
    short = recorder.call(
        CONSTANT_OP, (float("nan"), float("-inf")), (2, 1), Named("dtype", "float32"), device
    )
    many = tuple(range(40))
    long = recorder.call(CONSTANT_OP, many, (2, 20), Named("dtype", "int64"), device)
    scalar = recorder.call(CONSTANT_OP, (True,), (), Named("dtype", "bool"), device)
    graph = recorder.finish([short, long, scalar])
    text = check(recorder, graph)
    assert 'torch.tensor([[float("nan")], [float("-inf")]], dtype=torch.float32, device=device_cpu)' in text
    assert "torch.tensor(numbers_of_constant_1, dtype=torch.int64" in text
    empty = Recorder()
    none = empty.call(CONSTANT_OP, (), (0, 3), Named("dtype", "float32"), device)
    graph = empty.finish([none])
    (made,) = executable(graph, Schedule.program_order(graph)).run([])
    assert made.shape == (0, 3)


def test_shape_only_operand_may_be_made_later_or_never_kept():
    recorder = Recorder()
    x = recorder.input(torch.randn(5, 5), "x")
    big = recorder.call("aten.relu.default", x)
    zeros = recorder.call("aten.zeros_like.default", big)
    graph = recorder.finish([zeros])
    for order in ([0, 1], [1, 0]):
        text = check(recorder, graph, order)
        assert "zeros_like = aten_zeros_like_default(shape_of_relu, device=device_cpu)" in text


def test_batch_norm_is_repeated_by_its_stand_in_without_touching_the_statistics():
    recorder = Recorder()
    mean, variance = recorder.input(torch.zeros(3), "mean"), recorder.input(torch.ones(3), "variance")
    x = recorder.input(torch.randn(8, 3), "x")
    y, saved, _ = recorder.call(
        "aten.native_batch_norm.default", x, None, None, mean, variance, True, 0.1, 1e-5
    )
    z = recorder.call("aten.relu_.default", y)
    graph = recorder.finish([z, saved])
    text = check(recorder, graph, [0, 1, 0, 1])
    assert "aten__native_batch_norm_legit_no_stats(x, None, None, True, 0.1, 1e-05)  # again" in text


def test_results_of_a_stand_in_are_put_where_the_operation_has_them():
    recorder = Recorder()
    x = recorder.input(torch.randn(3, 6), "x")
    indices = recorder.call("aten.topk.default", x, 2)[1]
    graph = recorder.finish([indices])
    node = replace(
        graph.nodes[0],
        op="toy.argtop.default",
        outputs=(indices,),
        effects=replace(graph.nodes[0].effects, writes=(Access(0, 1),)),
    )
    graph = replace(graph, nodes=(node,))
    row = OpSpec("toy.argtop.default", replay=Replay("aten.topk.default", (0, 1), (1,), ("cpu",)))
    with torch.library._scoped_library("toy", "DEF") as library:
        library.define("argtop(Tensor x, int k) -> Tensor")
        library.impl("argtop", lambda x, k: x.topk(k)[1], "CPU")
        text = lower(graph, Schedule.from_nodes(graph, [0, 0]), OpRegistry([row])).source
    assert "    [unused_0, topk_1] = aten_topk_default(x, 2)  # again\n    del unused_0\n" in text


def test_watched_values_are_copied_at_their_version():
    recorder = Recorder()
    x = recorder.input(torch.randn(4, 6), "x")
    h = recorder.call("aten.mul.Scalar", x, 2.0)
    part = recorder.call("aten.slice.Tensor", h, 1, 2, 5)
    recorder.call("aten.relu_.default", part)
    late = recorder.call("aten.t.default", h)
    recorder.call("aten.mul_.Scalar", late, 3.0)
    recorder.call("aten.add_.Scalar", x, 1.0)
    unused = recorder.call("aten.neg.default", x)
    graph = recorder.finish([])
    before = recorder.fresh_inputs()[0]
    doubled = before * 2
    clipped = doubled.clone()
    clipped[:, 2:5].relu_()
    watches = [
        Watch("start", x, 0),
        Watch("end", x, 1),
        Watch("made", h, 0),
        Watch("clipped part", part, 1),
        Watch("clipped", h, 1),
        Watch("late view", late, 1),
        Watch("tripled", late, 2),
        Watch("unused", unused, 0),
    ]
    watched: dict[str, torch.Tensor] = {}
    executable(graph, Schedule.program_order(graph), watches=watches).run(recorder.fresh_inputs(), watched)
    expected = {
        "start": before,
        "end": before + 1,
        "made": doubled,
        "clipped part": clipped[:, 2:5],
        "clipped": clipped,
        "late view": clipped.t(),
        "tripled": clipped.t() * 3,
        "unused": -(before + 1),
    }
    assert {k: bits(v) for k, v in watched.items()} == {k: bits(v) for k, v in expected.items()}


def one_relu():
    recorder = Recorder()
    x = recorder.input(torch.randn(4), "x")
    return recorder.finish([recorder.call("aten.relu.default", x)])


def one_node(op, *args, outputs, line=0):
    b = GraphBuilder()
    b.node(op, b.input("x", (4,)), *args, outputs=outputs, source=Source("model.py", line))
    return b.finish()


REFUSED = {
    "a version that is never made": (one_relu, {"watches": [Watch("x", 0, 1)]}, "never made"),
    "a version before the first": (one_relu, {"watches": [Watch("x", 0, -1)]}, "never made"),
    "an unknown operation": (
        lambda: one_node("aten.no.default", outputs=["y: f32[4]"], line=3),
        {},
        r"has no operation aten\.no\.default\n  where: model.py:3",
    ),
    "a size that no input tells": (
        lambda: one_node("aten.new_zeros.default", [SizeExpr.dim("N")], outputs=["y: f32[{N}]"]),
        {},
        "the size N is not a number",
    ),
    "a step without a torch form": (
        one_relu,
        {"schedule": Schedule((Step(StepKind.COMPUTE, 0), Step(StepKind.EVICT, 0)))},
        "'evict'",
    ),
    "an operand whose data is needed after all": (
        lambda: replace(one_relu(), nodes=(replace(one_relu().nodes[0], effects=Effects()),)),
        {},
        "use only the shape",
    ),
}


@together("what", REFUSED)
def test_what_cannot_be_lowered_is_refused(what):
    made, options, message = REFUSED[what]
    with pytest.raises(LoweringError, match=message):
        code(made(), **options)


def test_a_draw_is_noted_once_and_forgotten_behind_its_last_repetition():
    recorder = Recorder()
    x = recorder.input(torch.ones(4, 4), "x")
    mask = recorder.call("aten.bernoulli.p", x, 0.5)
    other = recorder.call("aten.rand.default", [4, 4])
    total = recorder.call("aten.add.Tensor", mask, other)
    graph = recorder.finish([total, mask])
    schedule = Schedule.from_nodes(graph, [0, 1, 0, 2, 0])
    assert repeated_draws(graph, schedule) == {0: 4}
    program = lower(graph, schedule, registry())
    lines = [line.strip() for line in program.source.splitlines()]
    assert sum(line == "random_0 = random_state(device_cpu)" for line in lines) == 1
    assert sum(line == "with drawn_again(device_cpu, random_0):" for line in lines) == 2
    assert sum("del" in line and "random_0" in line for line in lines) == 1
    assert not any("random_1" in line for line in lines), "a draw that is not repeated needs no state"
    for number, line in enumerate(lines, 1):
        if "random_0" in line:
            assert program.node_at(number) is graph.nodes[0]
    check_run(recorder, graph, schedule, Executable(program, name="drawn"))

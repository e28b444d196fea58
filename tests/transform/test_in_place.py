"""Results on top of operands: the same bits, never more bytes, and only where nobody needs the operand."""

import pytest
import torch

from neaptide.ir.schedule import Schedule
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from neaptide.transform.rewrite import apply_rule
from neaptide.transform.rules import RULES
from support.torch_programs import Recorder, check_run
from transform.fission_play import last_of, peak, refused

RULE = RULES["in_place"]


def check(recorder, graph, edited):
    recorder.follow(edited, graph)
    schedule = Schedule.program_order(edited.graph)
    lowered = lower(edited.graph, schedule, registry())
    check_run(recorder, edited.graph, schedule, Executable(lowered, name="test"))


def rewritten(recorder, *outputs):
    graph = recorder.finish(outputs)
    return graph, apply_rule(graph, registry(), RULE)


def test_a_gradient_takes_the_place_of_the_one_that_arrives():
    recorder = Recorder()
    x, arriving = recorder.input(torch.randn(4, 6), "x"), recorder.input(torch.randn(24), "g")
    scaled = recorder.call("aten.view.default", recorder.call("aten.mul.Tensor", arriving, 3.0), (4, 6))
    back = recorder.call("aten.gelu_backward.default", scaled, x)
    graph, made = rewritten(
        recorder, recorder.call("aten.sum.default", recorder.call("aten.t.default", back))
    )
    assert "aten.gelu_backward.grad_input" in [node.op for node in made.edited.graph.nodes]
    assert peak(made.edited.graph) < peak(graph)
    check(recorder, graph, made.edited)


def test_the_second_operand_may_be_the_one_that_goes():
    recorder = Recorder()
    x = recorder.input(torch.randn(3, 5), "x")
    kept = recorder.call("aten.exp.default", x)
    other = recorder.call("aten.sin.default", x)
    added = recorder.call("aten.sub.Tensor", kept, other, alpha=2)
    graph, made = rewritten(recorder, recorder.call("aten.sum.default", added), kept)
    assert "aten.sub.out" in [node.op for node in made.edited.graph.nodes]
    check(recorder, graph, made.edited)


def of_the_caller(call, x):
    return (call("aten.relu.default", x),)


def needed_later(call, x):
    a = call("aten.exp.default", x)
    return call("aten.sum.default", call("aten.neg.default", a)), call("aten.sum.default", a)


def handed_back(call, x):
    a = call("aten.mm.default", x, x)
    return a, call("aten.neg.default", a)


@pytest.mark.parametrize(
    ("reason", "program", "op"),
    [
        ("the operand is the caller's", of_the_caller, "aten.relu.default"),
        ("the operand is needed later", needed_later, "aten.neg.default"),
        ("the operand is handed back", handed_back, "aten.neg.default"),
    ],
)
def test_refusals_have_reasons(reason, program, op):
    recorder = Recorder()
    outputs = program(recorder.call, recorder.input(torch.randn(4, 4), "x"))
    graph = recorder.finish(outputs)
    assert reason in refused(RULE, graph, last_of(graph, op))


def test_other_layouts_and_dtypes_are_left_alone():
    recorder = Recorder()
    x = recorder.input(torch.randn(4, 4), "x")
    a = recorder.call("aten.exp.default", x)
    turned = recorder.call("aten.t.default", recorder.call("aten.exp.default", x))
    added = recorder.call("aten.add.Tensor", a, turned)  # on top of `a`; `turned` has other strides
    flags = recorder.call("aten.gt.Scalar", added, 0)
    graph, made = rewritten(recorder, recorder.call("aten.any.default", flags))
    assert [node.op for node in made.edited.graph.nodes if node.op.startswith("aten.add")] == [
        "aten.add_.Tensor"
    ]
    assert "aten.gt.Scalar" in [node.op for node in made.edited.graph.nodes]
    check(recorder, graph, made.edited)

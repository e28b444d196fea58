"""Running a generated program, and what is known when it dies."""

from __future__ import annotations

import gc
import traceback
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from neaptide.errors import UsageError
from neaptide.ir.schedule import Schedule
from neaptide.lower.program import Watch
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from support.together import together
from support.torch_programs import Recorder


class DiesAt(TorchDispatchMode):
    """Raises instead of the k-th operation, aliases of the inputs not counted; watches the results of the others."""

    def __init__(self, k: int, error: type[BaseException] = RuntimeError):
        super().__init__()
        self.k = k
        self.error = error
        self.made: list[weakref.ref] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is not torch.ops.aten.detach.default:
            if self.k == 0:
                raise self.error("the machine is on fire")
            self.k -= 1
        out = func(*args, **(kwargs or {}))
        if func is not torch.ops.aten.detach.default and not func._schema.is_mutable:
            self.made.append(weakref.ref(out.untyped_storage()))
        return out


def training_step():
    """Forward, a gradient, and two updates in place: operations 4 and 6 write what the caller owns."""
    recorder = Recorder()
    weight, bias = recorder.input(torch.randn(4, 4), "weight"), recorder.input(torch.randn(4), "bias")
    x = recorder.input(torch.randn(2, 4), "x")
    rate = recorder.input(0.5, "rate")
    h = recorder.call("aten.mm.default", x, weight, line=12, module="net.fc")
    h = recorder.call("aten.add.Tensor", h, bias, line=12, module="net.fc")
    r = recorder.call("aten.relu.default", h, line=13, module="net")
    g = recorder.call("aten.sum.dim_IntList", r, [0], line=14)
    recorder.call("aten.mul_.Scalar", weight, rate, line=20)
    recorder.call("aten.sigmoid.default", g, line=21)
    recorder.call("aten.add_.Tensor", bias, g, line=22)
    last = recorder.call("aten.mul.Scalar", r, 2.0, line=23)
    return recorder, recorder.finish([last])


def make(recorder_and_graph, **options):
    recorder, graph = recorder_and_graph
    schedule = Schedule.program_order(graph)
    return Executable(lower(graph, schedule, registry(), **options), name="step"), recorder.fresh_inputs()


def test_run_empties_the_list_and_records_nothing():
    executable, inputs = make(training_step())
    leaf = inputs[0].requires_grad_()
    boxed = list(inputs)
    version = leaf._version
    (out,) = executable.run(boxed)
    assert boxed == []
    assert not out.requires_grad
    assert leaf._version > version  # autograd of the caller notices the update
    assert executable.interruption is None


def test_wrong_number_of_inputs_and_missing_dict_are_usage_errors():
    executable, inputs = make(training_step())
    with pytest.raises(UsageError, match="takes 4 inputs, not 3"):
        executable.run(inputs[1:])
    executable, inputs = make(training_step(), watches=[Watch("w", 0, 0)])
    with pytest.raises(UsageError, match="no dict"):
        executable.run(inputs)


@together(
    ("k", "op", "written"),
    [
        (0, "aten.mm.default", None),
        (2, "aten.relu.default", None),
        (4, "aten.mul_.Scalar", ("weight",)),  # it may have written a part
        (5, "aten.sigmoid.default", ("weight",)),
        (6, "aten.add_.Tensor", ("weight", "bias")),
        (7, "aten.mul.Scalar", ("weight", "bias")),
    ],
)
def test_what_had_been_written_when_an_operation_dies(k, op, written):
    executable, inputs = make(training_step())
    with pytest.raises(RuntimeError, match="on fire"), DiesAt(k):
        executable.run(inputs)
    if written is None:
        assert executable.interruption is None
    else:
        assert executable.interruption is not None
        assert executable.interruption.node is not None
        assert executable.interruption.node.op == op
        assert executable.interruption.written == written


def test_note_and_traceback_show_the_users_line_and_the_generated_line():
    executable, inputs = make(training_step())
    with pytest.raises(RuntimeError) as caught, DiesAt(5):
        executable.run(inputs)
    line = "    aten_sigmoid_default(sum)  # model.py:21"
    number = executable.program.source.splitlines().index(line)
    (note,) = caught.value.__notes__
    assert note.splitlines() == [
        "while neaptide ran step, at aten.sigmoid.default",
        "  where: /home/user/model.py:21  y = f(x)",
        "  module: (forward)",
        f"  program: line {number + 1}: aten_sigmoid_default(sum)  # model.py:21",
    ]
    text = "".join(traceback.format_exception(caught.value))
    assert f'File "{executable.current.file_name}", line {number + 1}, in program' in text
    assert line in text


def test_keyboard_interrupt_counts_the_operation_it_hit_as_written():
    executable, inputs = make(training_step())
    with pytest.raises(KeyboardInterrupt), DiesAt(4, KeyboardInterrupt):
        executable.run(inputs)
    assert executable.interruption is not None
    assert executable.interruption.written == ("weight",)


def test_run_is_the_same_under_no_grad_and_autocast():
    recorder, graph = training_step()
    outputs = []
    for context in (torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16)):
        executable, inputs = make((recorder, graph))
        with context:
            outputs += executable.run(inputs)
    assert [o.dtype for o in outputs] == [torch.float32] * 2
    assert all(torch.equal(o, recorder.data[graph.outputs[0]]) for o in outputs)


def test_gradients_are_enabled_inside_whatever_the_caller_says():
    recorder = Recorder()
    x = recorder.input(torch.randn(2), "x")
    graph = recorder.finish([recorder.call("aten.relu.default", x)])
    executable, inputs = make((recorder, graph))
    seen = []

    class Looks(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(torch.is_grad_enabled())
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Looks():
        executable.run(inputs)
    assert seen[-1] is True


def test_a_held_error_keeps_no_tensor_alive():
    executable, inputs = make(training_step())
    mode = DiesAt(5)
    owned = [weakref.ref(t.untyped_storage()) for t in inputs if isinstance(t, torch.Tensor)]
    with mode:
        try:
            executable.run(inputs)
        except RuntimeError as error:
            held = error
    gc.collect()
    assert len(mode.made) == 4
    assert [r() for r in mode.made] == [None] * 4
    assert [r() for r in owned] == [None] * 3
    assert "on fire" in str(held)

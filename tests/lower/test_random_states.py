from __future__ import annotations

import pytest
import torch

from neaptide.ir.schedule import Schedule
from neaptide.lower.random_states import drawn_again, random_state, repeated_draws, set_random_state
from neaptide.lower.torch_code import lower
from neaptide.ops import registry
from neaptide.runtime.calls.executor import Executable
from support.dispatch_modes import TimelineMeter
from support.torch_programs import Recorder, check_run


def test_inside_the_old_numbers_are_drawn_and_behind_it_the_new_ones():
    torch.manual_seed(3)
    state = random_state("cpu")
    assert state == bytes(torch.get_rng_state().numpy())
    first = torch.randn(7)
    expected_next = torch.randn(3)
    set_random_state("cpu", state)
    assert torch.equal(torch.randn(7), first)
    with drawn_again("cpu", state):
        assert torch.equal(torch.randn(7), first)
        torch.randn(100)
    assert torch.equal(torch.randn(3), expected_next)


def test_the_generator_is_put_back_when_the_draw_fails():
    torch.manual_seed(3)
    old = random_state("cpu")
    torch.rand(2)
    now = random_state("cpu")
    with pytest.raises(RuntimeError), drawn_again("cpu", old):
        torch.rand(2) @ torch.rand(3)
    assert random_state("cpu") == now


def test_taking_and_putting_a_state_is_no_operation_of_the_step():
    with TimelineMeter([]) as meter:
        set_random_state("cpu", random_state("cpu"))
    assert meter.timeline == []


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
